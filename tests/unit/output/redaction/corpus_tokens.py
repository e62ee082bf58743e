"""Vendors' tokens by their published formats, and values that only their name gives away.

A row is a type and a template (see `corpus.filled`); rows of one type are different forms of it.
"""

import base64
import json

from tests.unit.output.redaction.corpus import Secret, Shape, filled, itself, named

_TOKENS = """
openai                  sk-{a:48}
openai                  sk-{a:20}T3BlbkFJ{a:20}
openai-project          sk-proj-{w:74}T3BlbkFJ{w:74}
openai-service-account  sk-svcacct-{w:58}T3BlbkFJ{w:58}
openai-admin            sk-admin-{w:58}T3BlbkFJ{w:58}
anthropic               sk-ant-api03-{w:93}AA
anthropic-admin         sk-ant-admin01-{w:93}AA
anthropic-oauth         sk-ant-oat01-{w:93}AA
openrouter              sk-or-v1-{h:64}
deepseek                sk-{h:32}
groq                    gsk_{a:52}
xai                     xai-{a:80}
perplexity              pplx-{a:48}
huggingface             hf_{L:34}
replicate               r8_{a:37}
nvidia                  nvapi-{w:64}
langsmith               lsv2_pt_{h:32}_{h:10}
pinecone                pcsk_{a:5}_{a:63}
elevenlabs              sk_{h:48}
google-api-key          AIza{w:35}
google-api-key          AIzaSy{w:33}
google-client-secret    GOCSPX-{w:28}
google-access-token     ya29.a0{w:160}
google-refresh-token    1//0{w:99}
github-pat              ghp_{a:36}
github-oauth            gho_{a:36}
github-user             ghu_{a:36}
github-server           ghs_{a:36}
github-refresh          ghr_{a:76}
github-fine-grained     github_pat_{a:22}_{a:59}
gitlab-pat              glpat-{w:20}
gitlab-pat              glpat-{w:27}.01.{l:9}
gitlab-deploy           gldt-{w:20}
gitlab-runner           glrt-{w:20}
gitlab-trigger          glptt-{h:40}
gitlab-job              glcbt-1_{w:20}
bitbucket               ATBB{a:32}
atlassian               ATATT3xFfGF0{w:171}={h:8}
slack-bot               xoxb-{d:12}-{d:13}-{a:24}
slack-user              xoxp-{d:12}-{d:12}-{d:13}-{h:32}
slack-app               xapp-1-A{u:10}-{d:13}-{h:64}
slack-rotating          xoxe.xoxp-1-{a:163}
stripe-live             sk_live_{a:24}
stripe-live             sk_live_51{a:97}
stripe-test             sk_test_{a:24}
stripe-restricted       rk_live_{a:99}
stripe-webhook          whsec_{a:32}
square                  sq0atp-{w:22}
square-secret           sq0csp-{w:43}
square                  EAAA{w:60}
braintree               access_token$production${l:16}${h:32}
plaid                   access-production-{U:1}
shopify                 shpat_{h:32}
shopify-shared          shpss_{h:32}
sendgrid                SG.{w:22}.{w:43}
mailgun                 key-{h:32}
mailchimp               {h:32}-us12
brevo                   xkeysib-{h:64}-{a:16}
npm                     npm_{a:36}
pypi                    pypi-AgEIcHlwaS5vcmc{w:150}
rubygems                rubygems_{h:48}
crates-io               cio{a:32}
nuget                   oy2{l:43}
clojars                 CLOJARS_{h:60}
docker-hub              dckr_pat_{w:27}
docker-hub-org          dckr_oat_{w:32}
digitalocean            dop_v1_{h:64}
digitalocean-oauth      doo_v1_{h:64}
heroku                  HRKU-AA{w:58}
vault                   hvs.{w:92}
vault-batch             hvb.{w:138}
terraform-cloud         {a:14}.atlasv1.{w:67}
databricks              dapi{h:32}
pulumi                  pul-{h:40}
doppler                 dp.pt.{a:43}
one-password            ops_eyJ{b:250}
cloudflare-origin       v1.0-{h:24}-{h:146}
netlify                 nfp_{a:36}
planetscale             pscale_tkn_{w:43}
planetscale-password    pscale_pw_{w:43}
supabase                sbp_{h:40}
supabase-secret         sb_secret_{w:31}
fly-io                  FlyV1 fm2_{b:180}
tailscale               tskey-auth-k{a:11}CNTRL-{a:32}
newrelic                NRAK-{u:27}
grafana                 glsa_{a:32}_{h:8}
grafana-cloud           glc_eyJ{b:120}
sentry-user             sntryu_{h:64}
dynatrace               dt0c01.{u:24}.{u:64}
linear                  lin_api_{a:40}
notion                  ntn_{d:11}{a:35}
notion                  secret_{a:43}
figma                   figd_{w:40}
airtable                pat{a:14}.{h:64}
postman                 PMAK-{h:24}-{h:34}
contentful              CFPAT-{w:43}
hubspot                 pat-na1-{U:1}
typeform                tfp_{w:44}_{w:14}
telegram                {d:10}:AA{w:33}
discord                 MT{a:24}.G{w:5}.{w:38}
mapbox                  sk.eyJ1Ijoi{w:60}.{w:22}
buildkite               bkua_{h:40}
circleci                CCIPAT_{c:22}_{h:40}
sonarqube               squ_{h:40}
artifactory             AKCp8{a:68}
openshift               sha256~{w:43}
age                     AGE-SECRET-KEY-1{z:58}
twitter-bearer          AAAAAAAAAAAAAAAAAAAAAA{a:4}AAAAAA{a:6}%2B{a:30}%3D{a:48}
aws-access-key          AKIA{q:16}
aws-temporary-key       ASIA{q:16}
aws-mws                 amzn.mws.{U:1}
azure-client-secret     {a:3}8Q~{w:34}
azure-devops            {a:52}JQQJ99{a:18}AZDO{a:4}
"""

_NAMED = """
aws-secret              aws secret access key           {b:40}
aws-secret              secret access key               {b:40}
aws-session             aws session token               IQoJb3JpZ2luX2VjE{b:300}
azure-storage           azure storage account key       {b:86}==
azure-client-secret     client secret                   {w:40}
datadog-api             datadog api key                 {h:32}
datadog-app             dd app key                      {h:40}
twilio-auth             twilio auth token               {h:32}
heroku-legacy           heroku api key                  {U:1}
cloudflare              cloudflare api token            {w:40}
fastly                  fastly api token                {w:32}
algolia                 algolia admin api key           {h:32}
okta                    okta api token                  00{w:40}
postmark                postmark server token           {U:1}
asana                   asana access token              {h:32}
vercel                  vercel token                    {a:24}
mistral                 mistral api key                 {a:32}
jenkins                 jenkins api token               11{h:32}
wandb                   wandb api key                   {h:40}
django                  django secret key               {a:2}{p:48}
jwt-signing             jwt secret                      {a:32}
session-signing         session secret                  {h:64}
encryption-key          encryption key                  {h:64}
webhook-secret          webhook secret                  {a:32}
oauth-refresh           refresh token                   {w:64}
access-token            access token                    {w:48}
password                password                        {a:2}{p:12}
password                db password                     {a:2}{p:14}
password                root password                   {a:2}{p:18}
password                user passwd                     {a:2}{p:12}
password                smtp pass                       {a:16}
password                admin pwd                       {a:2}{p:10}
passphrase              gpg passphrase                  {a:2}{p:22}
password-short          redis password                  {a:10}
"""


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _jwt(algorithm: str, payload: dict[str, object], signature: int) -> str:
    head = _b64url(json.dumps({"alg": algorithm, "typ": "JWT"}, separators=(",", ":")).encode())
    body = _b64url(json.dumps(payload, separators=(",", ":")).encode())
    return f"{head}.{body}.{filled(f'{{w:{signature}}}', head)}"


def _jwts() -> list[Secret]:
    claims: dict[str, object] = {"sub": "fake", "iat": 1516239022, "scope": "admin"}
    account: dict[str, object] = {"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:fake"}
    sentry = _b64url(b'{"iat":1687336543.6,"url":"https://sentry.io","region_url":"https://us.sentry.io","org":"fake"}')
    tokens = {
        "jwt": _jwt("HS256", claims, 43),
        "jwt-rsa": _jwt("RS256", claims, 342),
        "kubernetes-account": _jwt("RS256", account, 342),
        "sentry-org": f"sntrys_{sentry}_{filled('{b:43}', 'sentry')}",
    }
    return [Secret(kind, Shape.ITSELF, token, (token,)) for kind, token in tokens.items()]


def tokens() -> list[Secret]:
    """All of the tables, and the tokens that are JSON inside."""
    rows = [line.split(None, 1) for line in _TOKENS.strip().splitlines()]
    secrets = [itself(kind, template, str(number)) for number, (kind, template) in enumerate(rows)]
    for number, line in enumerate(_NAMED.strip().splitlines()):
        kind, rest = line.split(None, 1)
        name, template = rest.rsplit(None, 1)
        secrets.append(named(kind, name.strip(), template, str(number)))
    return secrets + _jwts()
