"""What looks like a secret and is none: a redactor that touches it breaks the agent's work.

Whole lines as logs, lock files, code and configurations have them. Digests grow at run time like the secrets.
"""

import base64

from tests.unit.output.redaction.corpus import filled

_DIGESTS = """
git-log            commit {h:40} (HEAD -> main, origin/main)
git-log            {h:7} Rotate the password reset token earlier
git-log            index {h:7}..{h:7} 100644
git-ls-tree        100644 blob {h:40}	src/token.py
git-submodule       {h:40} vendor/secret-service (v1.2.0-3-g{h:7})
git-reflog         {h:7} HEAD@{1}: commit: add api key check
package-lock       "integrity": "sha512-{b:86}==",
package-lock       "resolved": "https://registry.example.com/js-tokens/-/js-tokens-4.0.0.tgz",
yarn-lock            integrity sha512-{b:86}==
yarn-lock            resolved "https://registry.example.com/jsonwebtoken/-/jsonwebtoken-9.0.2.tgz#{h:40}"
yarn-berry           checksum: 10c0/{h:128}
pnpm-lock          resolution: {integrity: sha512-{b:86}==}
cargo-lock         checksum = "{h:64}"
cargo-lock         source = "git+https://github.com/acme/secret-lib?branch=main#{h:40}"
poetry-lock            {file = "keyring-25.2.1-py3-none-any.whl", hash = "sha256:{h:64}"},
uv-lock            { url = "https://files.example.com/{h:2}/{h:60}/tokenize.tar.gz", hash = "sha256:{h:64}" }
pip-hash               --hash=sha256:{h:64} \\
pip-hash           cryptography==42.0.5 --hash=sha256:{h:64}
go-sum             github.com/golang-jwt/jwt/v5 v5.2.1 h1:{b:43}=
go-sum             golang.org/x/oauth2 v0.20.0/go.mod h1:{b:43}=
go-mod-pseudo      github.com/acme/tokens v0.0.0-20240318034219-{h:12}
composer-lock      "reference": "{h:40}",
gemfile-lock       bcrypt (3.1.20) sha256={h:64}
sha256sum          {h:64}  password-store-1.7.4.tar.xz
sha512sum          {h:128}  app.tar.gz
md5sum             {h:32}  secrets.yaml
nix-hash           hash = "sha256-{b:43}=";
docker-digest      Digest: sha256:{h:64}
docker-digest      FROM python:3.12-slim@sha256:{h:64}
docker-digest      {h:12}   registry.example.com/token-service   latest    3 days ago   182MB
container-id       {h:64}
etag               ETag: "{h:32}"
etag               etag: W/"5e1-{a:27}"
trace-id           traceparent: 00-{h:32}-{h:16}-01
trace-id           x-request-id: {U:1}
trace-id           level=info trace_id={h:32} span_id={h:16} msg="token refreshed"
amz-request        x-amz-request-id: {u:16}
uuid               session 7: {U:1} started
uuid               "id": "{U:1}",
uuid               DELETE FROM tokens WHERE id = '{U:1}';
png                ![logo](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA{b:200}=)
png                src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{b:300}=="
font               url(data:font/woff2;base64,d09GMgABAAAAA{b:200})
source-map         //# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpb{a:120}
sri                <script src="/a.js" integrity="sha384-{b:64}" crossorigin="anonymous"></script>
csp                script-src 'self' 'sha256-{b:43}='
public-key         ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b:43} dev@example.com
public-key         ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{b:360} ci@example.com
known-hosts        github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b:43}
fingerprint        256 SHA256:{b:43} dev@example.com (ED25519)
pgp-fingerprint    Key fingerprint = {h:4} {h:4} {h:4} {h:4} {h:4}  {h:4} {h:4} {h:4} {h:4} {h:4}
hexdump            00000010  {h:2} {h:2} {h:2} {h:2} {h:2} {h:2} {h:2} {h:2}  {h:2} {h:2} {h:2} {h:2}  |............|
xxd                00000020: {h:4} {h:4} {h:4} {h:4} {h:4} {h:4} {h:4} {h:4}  ................
pointer            #3  0x0000{h:12} in password_verify () from /usr/lib/libcrypt.so.2
buildid            BuildID[sha1]={h:40}, for GNU/Linux 3.2.0, stripped
cache-key          Cache restored from key: npm-linux-x64-{h:64}
cache-key          key: v1-deps-{{ checksum "package-lock.json" }}
webpack            asset main.{h:20}.js 214 KiB [emitted] [immutable] [minimized] (name: main)
bazel              INFO: Build invocation ID: {U:1}
arn                arn:aws:iam::123456789012:role/secret-reader
arn                arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-{a:6}
gcp-secret-name    projects/acme/secrets/db-password/versions/3
azure-key-vault    @Microsoft.KeyVault(SecretUri=https://acme.vault.azure.net/secrets/db-password/)
vault-path         vault kv get -field=password secret/data/prod/db
eth-address        0x{h:40}
migration          revision = "{h:12}"
npm-debug          npm verb stack 44 http fetch GET 200 https://registry.example.com/token-types 35ms (cache hit)
pytest-cache       tests/test_token.py::test_password_is_hashed[{h:8}] PASSED
pod                token-service-{h:9}-x7k2p   1/1     Running   0          3d
k8s-names          secret/default-token-x9k2p created
k8s-names          kubectl get secret app-credentials -o yaml -n payments
"""

_LINES = r"""
code    password = os.environ["DB_PASSWORD"]
code    password = os.getenv("DB_PASSWORD", "")
code    api_key = settings.openai_api_key.get_secret_value()
code    const apiKey = process.env.OPENAI_API_KEY;
code    const token = await getAccessToken({ audience });
code    token := os.Getenv("GITHUB_TOKEN")
code    let token = std::env::var("API_TOKEN")?;
code    secret: ENV.fetch("SECRET_KEY_BASE")
code    String password = System.getenv("DB_PASSWORD");
code    password = getpass.getpass("Password: ")
code    def get_password_hash(password: str) -> str:
code    return pwd_context.verify(plain_password, hashed_password)
code    token_count = 5
code    max_tokens=4096, temperature=0.2
code    api_key: str
code    api_key: str | None = None
code    password: Optional[SecretStr] = Field(default=None)
code    private readonly apiToken: string;
code    password?: string | undefined;
code    Password string `json:"password,omitempty"`
code    pub secret: Option<String>,
code    private final String clientSecret;
code    public string Password { get; set; }
code    val accessToken: String? = null
code    function login(username: string, password: string): Promise<Session> {
code    if (password.length < MIN_PASSWORD_LENGTH) throw new PasswordTooShortError();
code    self.token = token
code    this.password = password;
code    headers["Authorization"] = f"Bearer {token}"
code    'Authorization': `Bearer ${accessToken}`,
code    req.Header.Set("Authorization", "Bearer "+token)
code    secret_key = secrets.token_urlsafe(32)
code    password_field = driver.find_element(By.ID, "password")
code    sort_key = lambda item: item.created_at
code    key = "user_preferences_notifications"
code    primary_key=True, foreign_key="users.id"
code    PASSWORD_RESET_TIMEOUT = 259200
code    AUTH_PASSWORD_VALIDATORS = [
code    TOKEN_PATTERN = re.compile(r"^[A-Za-z0-9_-]{20,}$")
code    tokens = tokenizer.encode(text)
code    raise ValueError("password must not be empty")
code    assert response.json()["detail"] == "Invalid authentication credentials"
code    from cryptography.hazmat.primitives.serialization import load_pem_private_key
code    import { TokenExpiredError } from 'jsonwebtoken';
code    use secrecy::{ExposeSecret, SecretString};
code    token = match.group("token")
code    credentials = service_account.Credentials.from_service_account_file(path)
code    password = config.get("database", "password")
code    password=$(pass show prod/db)
code    secret=${SECRET}
code    export GITHUB_TOKEN="$(gh auth token)"
code    TOKEN=$1
code    read -rsp "Password: " password
code    PGPASSWORD="$DB_PASSWORD" psql -h "$DB_HOST" -U app
code    curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v1/me
code    mysql -u root -p"$MYSQL_ROOT_PASSWORD" < dump.sql
code    pwd=/srv/project
code    OLDPWD=/home/dev/password-manager
code    test('rejects an expired refresh token', async () => {
code    def test_the_api_key_is_masked_in_the_log(): ...
code    @pytest.mark.parametrize("password", ["", None])
code    CREATE TABLE users (id SERIAL PRIMARY KEY, password_hash VARCHAR(255) NOT NULL);
code    SELECT token, expires_at FROM sessions WHERE user_id = $1
code    ALTER USER app WITH PASSWORD :'password';
code    <input type="password" name="password" autocomplete="current-password">
code    <label for="password">Password:</label>
code    .token.punctuation { color: #999988; }
code    background: #c0ffee; border-color: rgba(186,218,85,.5)
code    !function(e,t){"object"==typeof exports?module.exports=t():e.token=t()}(this,function(){return n.password=r});
code    var keyCode = event.keyCode || event.which;
config    SECRET_KEY=<your key>
config    OPENAI_API_KEY=your-api-key-here
config    API_KEY=changeme
config    DB_PASSWORD=
config    password: ""
config    password: null
config    token: ${{ secrets.GITHUB_TOKEN }}
config    password: {{ .Values.postgres.password | quote }}
config    password: "{{ vault_db_password }}"
config    token: !Ref GitHubToken
config    password = var.db_password
config    sensitive   = true
config    secretKeyRef: { name: db-credentials, key: password }
config    secretName: tls-wildcard-example-com
config    passwordSecretRef: prod-db-password
config    serviceAccountName: token-reviewer
config    automountServiceAccountToken: false
config    tokenizer: bert-base-uncased
config    max_tokens: 8192
config    token_budget = 200000
config    access_token_expire_minutes = 30
config    password_min_length: 12
config    auth: true
config    PasswordAuthentication no
config    PubkeyAuthentication yes
config    IdentityFile ~/.ssh/id_ed25519
config    ssl_certificate_key /etc/nginx/tls/server.key;
config    api_key_env = "OPENAI_API_KEY"
config    key_file: /run/secrets/db_password
config    POSTGRES_PASSWORD_FILE=/run/secrets/postgres-password
config    credential.helper=osxkeychain
config    "password": "Password",
config    "forgotPassword": "Forgot your password?",
config    "auth.token.expired": "Your session has expired, please log in again",
config    "jsonwebtoken": "^9.0.2",
config    "secret": {"type": "string", "description": "The shared secret"},
config    "required": ["username", "password"],
config    "tokenType": "Bearer",
config    "token_type": "bearer", "expires_in": 3600
config    "keyboardShortcuts": {"toggleSidebar": "ctrl+shift+b"},
config    "author": "Ada Example <ada@example.com>",
option    acp-agent --token-file path/to/token
option    --password-stdin
option    docker login -u bot --password-stdin registry.example.com
option    gpg --batch --passphrase-file /run/secrets/pass --decrypt backup.gpg
option    --api-key <API_KEY>    The key to use [env: API_KEY=]
option    -p, --password <PASSWORD>   Password to use
option      --token string      Bearer token for authentication to the API server
option    usage: tool [-h] [--secret SECRET] [--token TOKEN]
option    ssh -i ~/.ssh/deploy_key -p 2222 deploy@host.example.com
option    mysql -u root -p shop
option    curl -u "$USER:$PASS" https://api.example.com/
option    kubectl create secret generic db --from-file=password=./password.txt
prose    Authorization: Bearer <token>
prose    Authorization: Basic <base64 of user:password>
prose    Send the header `Authorization: Bearer YOUR_TOKEN` with every request.
prose    The password must be at least 12 characters: letters, digits and punctuation.
prose    Enter password for user postgres:
prose    sudo: a password is required
prose    Permission denied (publickey,password).
prose    fatal: Authentication failed for 'https://github.com/acme/app.git/'
prose    error: invalid token: unexpected end of input at line 3
prose    SyntaxError: Unexpected token '<', "<!DOCTYPE "... is not valid JSON
prose    KeyError: 'api_key'
prose    ERROR: password authentication failed for user "app"
prose    Token: expected identifier, found keyword `fn`
prose    Secret: why it works is explained in chapter four.
prose    secret scanning found 0 leaks in 1423 commits
prose    warning: unused variable: `password`
prose    Tokens used: 12345 of 200000 (prompt 11000, completion 1345)
prose    Set OPENAI_API_KEY to your key before you run the examples.
prose    Note: credentials are read from ~/.aws/credentials and never stored.
prose    The key: always look at the query plan first.
prose    renamed: config/secrets.yaml -> config/secrets.example.yaml
prose    The connection string has the form postgres://user:password@host:5432/db
url    Listening on http://localhost:8080/auth/token
url    postgres://localhost:5432/app
url    postgres://app@db.internal:5432/app
url    git@github.com:acme/password-manager.git
url    ssh://git@git.example.com:2222/acme/secrets.git
url    https://example.com:8443/reset-password?step=2
url    https://example.com/docs/api-keys#rotating-a-key
url    postgres://${DB_USER}:${DB_PASSWORD}@${DB_HOST}/app
url    redis://:$REDIS_PASSWORD@cache:6379/0
url    mailto:security@example.com?subject=token
url    https://login.example.com/authorize?response_type=token&client_id=web
url    npm:@scope/token-utils@1.4.2
file    src/auth/password_reset_token.py:41:12: F841 local variable is assigned to but never used
file    -rw------- 1 dev dev  411 Mar  4 05:06 id_ed25519
file    modified:   deploy/sealed-secrets.yaml
file    ./node_modules/@babel/helper-validator-identifier/lib/keyword.js
file    found 3 files: .env.example, .netrc.sample, credentials.md
"""


def _rows(table: str) -> list[tuple[str, str]]:
    """`kind<spaces>line`: what the kind is padded with belongs to the line only beyond the column of the table."""
    rows = [line for line in table.strip("\n").splitlines() if line]
    return [(row.split(None, 1)[0], row.split(None, 1)[1]) for row in rows]


def _certificate() -> str:
    body = filled("MII{b:637}", "certificate")
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----"))


def _public_key() -> str:
    body = filled("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A{b:352}", "public")
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(("-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----"))


def lookalikes() -> list[tuple[str, str]]:
    """(kind, text) of everything that must come back as it is."""
    digests = [(kind, filled(line, str(number))) for number, (kind, line) in enumerate(_rows(_DIGESTS))]
    prose = base64.b64encode(b"An ordinary sentence, only in base64, as mail bodies have it.").decode()
    blocks = [("certificate", _certificate()), ("public-key", _public_key()), ("base64-text", prose)]
    return digests + _rows(_LINES) + blocks
