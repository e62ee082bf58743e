"""Secrets in what carries them: URLs, connection strings, headers, key blocks, rc files, command lines.

`<>` in a carrier is where the secret stands; only it must go.
"""

import base64
import textwrap

from tests.unit.output.redaction.corpus import WINDOW, Secret, Shape, filled, within

_P = "{a:2}{p:16}"  # a password
_T = "{a:32}"  # a token
_U = "{a:18}"  # a password fit for a URL

_CARRIERS = (
    ("url-userinfo", "https://deploy:<>@srv.example.com/x.git", _U),
    ("url-token-user", "https://x-access-token:<>@github.com/acme/app.git", _T),
    ("url-no-user", "redis://:<>@cache.internal:6379/0", _U),
    ("ftp", "ftp://backup:<>@ftp.example.com/dumps", _U),
    ("postgres", "postgres://app:<>@db.internal:5432/app?sslmode=require", _U),
    ("postgres-sqlalchemy", "postgresql+asyncpg://app:<>@db/app", _U),
    ("postgres-libpq", "host=db.internal port=5432 dbname=app user=app password=<> sslmode=require", _U),
    ("mysql", "mysql://root:<>@127.0.0.1:3306/shop", _U),
    ("mysql-sqlalchemy", "mysql+pymysql://root:<>@db/shop?charset=utf8mb4", _U),
    ("mongodb", "mongodb+srv://app:<>@cluster0.ab1cd.mongodb.net/test?retryWrites=true", _U),
    ("mongodb", "mongodb://app:<>@m1:27017,m2:27017/test?replicaSet=rs0", _U),
    ("redis", "rediss://default:<>@cache.example.com:6380/1", _U),
    ("amqp", "amqps://worker:<>@mq.example.com:5671/%2f", _U),
    ("mssql", "Server=tcp:sql.example.com,1433;Database=app;User ID=sa;Password=<>;Encrypt=True;", _U),
    ("mssql", "Data Source=sql1;Initial Catalog=app;Uid=sa;Pwd=<>;", _U),
    ("oracle-jdbc", "jdbc:oracle:thin:scott/<>@//db.internal:1521/XEPDB1", _U),
    ("postgres-jdbc", "jdbc:postgresql://db.internal/app?user=app&password=<>&ssl=true", _U),
    ("clickhouse", "clickhouse://default:<>@ch.internal:9440/logs?secure=true", _U),
    ("azure-storage", "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=<>;EndpointSuffix=core.windows.net",
     "{b:86}=="),
    ("azure-service-bus", "Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=<>",
     "{b:43}="),
    ("azure-sas", "https://acme.blob.core.windows.net/c/f?sv=2022-11-02&se=2026-01-01&sr=b&sp=r&sig=<>", "{a:43}%3D"),
    ("aws-presigned", "https://b.s3.amazonaws.com/k?X-Amz-Expires=300&X-Amz-SignedHeaders=host&X-Amz-Signature=<>",
     "{h:64}"),
    ("url-query", "https://api.example.com/v1/items?limit=5&api_key=<>&page=2", _T),
    ("url-query", "https://api.example.com/callback?access_token=<>&state=7", "{w:48}"),
    ("slack-webhook", "https://hooks.slack.com/services/T{u:8}/B{u:10}/<>", "{a:24}"),
    ("discord-webhook", "https://discord.com/api/webhooks/{d:18}/<>", "{w:68}"),
    ("teams-webhook", "https://acme.webhook.office.com/webhookb2/{U:1}/IncomingWebhook/<>/{U:1}", "{h:32}"),
    ("bearer", "Authorization: Bearer <>", "{w:40}"),
    ("basic", "Authorization: Basic <>", "ZmFrZTp{a:28}="),
    ("basic", "proxy-authorization: Basic <>", "ZmFrZTp{a:19}=="),
    ("github-header", "Authorization: token <>", "{h:40}"),
    ("api-key-header", "X-Api-Key: <>", _T),
    ("api-key-header", "x-auth-token: <>", "{h:48}"),
    ("gitlab-header", "PRIVATE-TOKEN: <>", "{w:20}"),
    ("cookie", "Cookie: theme=dark; sessionid=<>; lang=en", _T),
    ("cookie", "Set-Cookie: session=<>; Path=/; HttpOnly; Secure", "{w:64}"),
    ("connect-sid", "Cookie: connect.sid=s%3A<>", "{w:32}.{a:43}"),
)  # fmt: skip

_LINES = (
    ("netrc", "machine api.example.com login bot password <>", _P, ".netrc"),
    ("netrc", "machine api.example.com\n  login bot\n  password <>", _U, "_netrc"),
    ("pgpass", "db.internal:5432:app:app:<>", _U, ".pgpass"),
    ("pgpass", "*:*:*:postgres:<>", _U, ".pgpass"),
    ("npmrc", "//registry.example.com/:_authToken=<>", "{U:1}", ".npmrc"),
    ("npmrc", "always-auth=true\n_auth=<>", "ZmFrZTp{a:28}=", ".npmrc"),
    ("npmrc", "//npm.example.com/:_password=<>", "{a:22}==", ".npmrc"),
    ("yarnrc", "npmScopes:\n  acme:\n    npmAuthToken: <>", "{U:1}", ".yarnrc.yml"),
    ("pypirc", "[pypi]\nusername = bot\npassword = <>", _P, ".pypirc"),
    ("docker-config", '{\n\t"auths": {\n\t\t"registry.example.com": {\n\t\t\t"auth": "<>"\n\t\t}\n\t}\n}',
     "ZmFrZTp{a:28}=", ".docker/config.json"),
    ("git-credentials", "https://bot:<>@git.example.com", _U, ".git-credentials"),
    ("git-extraheader", '[http "https://git.example.com/"]\n\textraheader = AUTHORIZATION: basic <>',
     "ZmFrZTp{a:40}=", ".git/config"),
    ("kubeconfig-token", "users:\n- name: admin\n  user:\n    token: <>", "{l:6}.{l:16}", ".kube/config"),
    ("kubernetes-secret", "kind: Secret\napiVersion: v1\ndata:\n  password: <>", "{a:22}==", "secret.yaml"),
    ("aws-credentials", "[default]\naws_access_key_id = x\naws_secret_access_key = <>", "{b:40}", ".aws/credentials"),
    ("s3cfg", "[default]\nsecret_key = <>", "{b:40}", ".s3cfg"),
    ("cargo-credentials", '[registry]\ntoken = "<>"', "{a:35}", ".cargo/credentials.toml"),
    ("gem-credentials", "---\n:rubygems_api_key: <>", "{h:48}", ".gem/credentials"),
    ("maven-settings", "<server>\n  <id>repo</id>\n  <password><></password>\n</server>", _U, ".m2/settings.xml"),
    ("nuget-config", '<add key="ClearTextPassword" value="<>" />', _U, "NuGet.Config"),
    ("composer-auth", '{"http-basic": {"repo.example.com": {"username": "bot", "password": "<>"}}}', _U, "auth.json"),
    ("mysql-cnf", "[client]\nuser=root\npassword=<>", _P, ".my.cnf"),
    ("wireguard", "[Interface]\nPrivateKey = <>\nAddress = 10.0.0.2/32", "{b:43}=", "wg0.conf"),
    ("rclone", "[s3]\ntype = s3\nsecret_access_key = <>", "{b:40}", "rclone.conf"),
    ("tfvars", 'db_user     = "app"\ndb_password = "<>"', _P, "prod.tfvars"),
    ("wp-config", "define( 'DB_PASSWORD', '<>' );", _U, "wp-config.php"),
    ("gh-hosts", "github.com:\n    oauth_token: <>\n    user: bot", "gho_{a:36}", ".config/gh/hosts.yml"),
    ("gcloud-adc", '{\n  "client_secret": "<>",\n  "type": "authorized_user"\n}', "d-{w:22}", "adc.json"),
    ("curl-user", "$ curl -u admin:<> https://api.example.com/", _U, "typescript"),
    ("curl-header", "$ curl -H 'Authorization: Bearer <>' https://api.example.com/", "{w:40}", "typescript"),
    ("mysql-option", "$ mysql -u root -p<> shop", _U, "typescript"),
    ("sshpass", "$ sshpass -p '<>' ssh root@host", _P, "typescript"),
    ("pgpassword", "$ PGPASSWORD=<> psql -h db app", _U, "typescript"),
    ("docker-login", "$ docker login -u bot -p <> registry.example.com", _U, "typescript"),
    ("redis-cli", "$ redis-cli -h cache -a <> ping", _U, "typescript"),
    ("openssl-pass", "$ openssl rsa -in k.pem -passin pass:<> -out k2.pem", _U, "typescript"),
    ("code-python", 'conn = psycopg2.connect(host="db", user="app", password="<>")', _P, "app/db.py"),
    ("code-js", "mongoose.connect(uri, { user: 'app', pass: '<>' })", _P, "src/db.js"),
    ("code-go", 'apiKey := "<>"', _T, "main.go"),
    ("code-java", 'private static final String API_SECRET = "<>";', _T, "src/Main.java"),
    ("code-php", "$config['password'] = '<>';", _P, "config.php"),
    ("code-ruby", "config.secret_key_base = '<>'", "{h:128}", "config/secrets.rb"),
    ("code-csharp", 'var password = "<>";', _P, "Program.cs"),
)  # fmt: skip


def _carried() -> list[Secret]:
    bare = [within(kind, carrier, value, seed=str(n)) for n, (kind, carrier, value) in enumerate(_CARRIERS)]
    filed = [within(kind, carrier, value, path, str(n)) for n, (kind, carrier, value, path) in enumerate(_LINES)]
    return bare + filed


def _block(kind: str, size: int, head: str = "", width: int = 64) -> tuple[str, tuple[str, ...]]:
    """A key block with a body of `size` characters, and those lines of it that are long enough to count."""
    body = head + filled(f"{{b:{size}}}", kind)
    lines = tuple(textwrap.wrap(body, width))
    extra = "\n" if "PGP" in kind else ""
    text = "\n".join((f"-----BEGIN {kind}-----{extra}", *lines, f"-----END {kind}-----"))
    return text, tuple(line for line in lines if len(line) >= WINDOW)


def _keys() -> list[Secret]:
    openssh = base64.b64encode(b"openssh-key-v1\0\0\0\0\4none\0\0\0\4none").decode().rstrip("=")
    blocks = {
        "pem-rsa": (_block("RSA PRIVATE " + "KEY", 1590, "MII"), "server.key"),
        "pem-pkcs8": (_block("PRIVATE " + "KEY", 1620, "MII"), "tls.key"),
        "pem-ec": (_block("EC PRIVATE " + "KEY", 220, "MHc"), "ec.pem"),
        "pem-encrypted": (_block("ENCRYPTED PRIVATE " + "KEY", 1700, "MII"), "enc.pem"),
        "openssh": (_block("OPENSSH PRIVATE " + "KEY", 350, openssh, 70), ".ssh/id_ed25519"),
        "pgp": (_block("PGP PRIVATE " + "KEY BLOCK", 900, "lQ"), "private.asc"),
    }
    secrets = [Secret(kind, Shape.FILE, text, parts, path=path) for kind, ((text, parts), path) in blocks.items()]
    text, parts = _block("RSA PRIVATE " + "KEY", 1500, "MII")
    begun = "\n".join(text.splitlines()[:9])
    ended = "\n".join(text.splitlines()[-9:])
    secrets.append(Secret("pem-cut-at-the-end", Shape.FILE, begun, parts[:8], path="head.key"))
    secrets.append(Secret("pem-cut-at-the-start", Shape.FILE, ended, parts[-8:], path="tail.key"))
    one_line = text.replace("\n", "\\n")
    secrets.append(Secret("pem-in-one-line", Shape.ITSELF, one_line, parts))
    account = f'{{"type": "service_account", "private_key": "{one_line}"}}'
    secrets.append(Secret("gcp-private-key", Shape.FILE, account, parts, path="gcp.json"))
    data = base64.b64encode(text.encode()).decode()
    config = f"users:\n- name: admin\n  user:\n    client-key-data: {data}"
    secrets.append(Secret("kubeconfig-key", Shape.FILE, config, (data,), path=".kube/config"))
    return secrets


def carried() -> list[Secret]:
    """All secrets that stand in something."""
    return _carried() + _keys()
