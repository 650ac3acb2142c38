"""Secrets to plant in traffic, in the formats of public documentation, made of seeded random characters.

Written from the issuers' own pages, before any library's patterns were read. None of them was ever valid.
``core`` is the part that may not be in a recorded file, in whole or in pieces.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

from tests.traffic.planted_prefixes import prefixed_secrets

_ALNUM = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits
_HEX = "0123456789abcdef"
_BASE64 = _ALNUM + "+/"
_URL64 = _ALNUM + "-_"


@dataclass(frozen=True)
class Planted:
    """One secret: its name, the text that people write, its secret part, and the page of its format."""

    name: str
    text: str
    core: str
    page: str


def planted(seed: int = 15) -> list[Planted]:
    """Make every secret of the list."""
    chance = random.Random(seed)

    def of(alphabet: str, length: int) -> str:
        created = "".join(chance.choices(alphabet, k=length))
        # A real key of mixed characters has all of its classes.
        ok = alphabet in (_HEX, string.digits) or (
            any(each.isdigit() for each in created) and any(each.isalpha() for each in created)
        )
        mixed = "a" not in alphabet or "A" not in alphabet or (created.lower() != created != created.upper())
        return created if ok and mixed else of(alphabet, length)

    def token(name: str, prefix: str, tail: str, page: str) -> Planted:
        return Planted(name, prefix + tail, tail, page)

    def segment(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    jwt = ".".join(
        (
            segment({"alg": "HS256", "typ": "JWT"}),
            segment({"sub": of(string.digits, 10), "name": "Ada", "iat": 1516239022}),
            of(_URL64, 43),
        )
    )

    def pem(kind: str, lines: int = 6) -> Planted:
        body = "\n".join(of(_BASE64, 64) for _ in range(lines))
        text = f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"
        return Planted(f"PEM {kind}", text, body, "RFC 7468; PROTOCOL.key of OpenSSH; RFC 4880")

    basic = base64.b64encode(f"deploy:{of(_ALNUM, 18)}".encode()).decode()
    password = of(_ALNUM, 16)
    slack = f"{of(string.digits, 12)}-{of(string.digits, 12)}-{of(_ALNUM, 24)}"
    aws = "AWS IAM user guide: IAM identifiers, access keys"
    github = "GitHub blog: Behind GitHub's new authentication token formats"
    google = "Google Cloud: API keys; OAuth 2.0 tokens"
    azure = "Azure: storage connection strings, SAS, client secrets"
    stripe = "Stripe: API keys; webhooks"
    url = "RFC 3986, 3.2.1: user information; libpq connection URIs"
    return [
        token("AWS access key", "AKIA", of(string.ascii_uppercase + "234567", 16), aws),
        token("AWS temporary key", "ASIA", of(string.ascii_uppercase + "234567", 16), aws),
        token("AWS secret key, env", "AWS_SECRET_ACCESS_KEY=", of(_BASE64, 40), aws),
        token("AWS secret key, ini", "aws_secret_access_key = ", of(_BASE64, 40), aws),
        Planted("AWS secret key, alone", key := of(_BASE64, 40), key, aws),
        token("AWS session token", "AWS_SESSION_TOKEN=", "IQoJb3JpZ2luX2Vj" + of(_BASE64, 300), aws),
        token("GitHub personal", "ghp_", of(_ALNUM, 36), github),
        token("GitHub OAuth", "gho_", of(_ALNUM, 36), github),
        token("GitHub server", "ghs_", of(_ALNUM, 36), github),
        token("GitHub refresh", "ghr_", of(_ALNUM, 76), github),
        token("GitHub fine-grained", "github_pat_", f"{of(_ALNUM, 22)}_{of(_ALNUM, 59)}", github),
        token("GitLab personal", "glpat-", of(_URL64, 20), "GitLab: personal access tokens"),
        token("Slack bot", "xoxb-", slack, "Slack: token types"),
        token("Slack user", "xoxp-", f"{of(string.digits, 12)}-{slack}", "Slack: token types"),
        token("Slack app", "xapp-1-", f"A{of(_UPPER, 10)}-{of(string.digits, 13)}-{of(_HEX, 64)}", "Slack"),
        token(
            "Slack webhook",
            "https://hooks.slack.com/services/",
            f"T{of(_UPPER, 8)}/B{of(_UPPER, 8)}/{of(_ALNUM, 24)}",
            "Slack: incoming webhooks",
        ),
        token("Stripe live", "sk_live_", of(_ALNUM, 24), stripe),
        token("Stripe restricted", "rk_live_", of(_ALNUM, 99), stripe),
        token("Stripe webhook", "whsec_", of(_ALNUM, 32), stripe),
        token("OpenAI", "sk-", f"{of(_ALNUM, 20)}T3BlbkFJ{of(_ALNUM, 20)}", "OpenAI: API keys"),
        token("OpenAI project", "sk-proj-", f"{of(_URL64, 74)}T3BlbkFJ{of(_URL64, 74)}", "OpenAI: API keys"),
        token("OpenAI service", "sk-svcacct-", of(_URL64, 120), "OpenAI: API keys"),
        token("Anthropic", "sk-ant-api03-", f"{of(_URL64, 93)}AA", "Anthropic: getting an API key"),
        token("Hugging Face", "hf_", of(_ALNUM, 34), "Hugging Face: user access tokens"),
        token("Google API key", "AIza", of(_URL64, 35), google),
        token("Google OAuth secret", "GOCSPX-", of(_URL64, 28), google),
        token("Google access token", "ya29.", of(_URL64, 120), google),
        token("Azure account key", "AccountKey=", of(_BASE64, 86) + "==", azure),
        token("Azure SAS", "?sv=2024-11-04&ss=b&sig=", quote(of(_BASE64, 43) + "=", safe=""), azure),
        token("Azure client secret", "", f"{of(_ALNUM, 3)}8Q~{of(_ALNUM + '_.~-', 34)}", azure),
        Planted("JWT", jwt, jwt.rpartition(".")[2], "RFC 7519"),
        Planted("Bearer", f"Authorization: Bearer {(bearer := of(_URL64, 40))}", bearer, "RFC 6750"),
        Planted("Basic", f"Authorization: Basic {basic}", basic, "RFC 7617"),
        pem("RSA PRIVATE KEY"),
        pem("EC PRIVATE KEY", 3),
        pem("OPENSSH PRIVATE KEY"),
        pem("ENCRYPTED PRIVATE KEY"),
        pem("PGP PRIVATE KEY BLOCK"),
        Planted("password in a URL", f"postgres://app:{password}@db.example.com:5432/main", password, url),
        Planted(
            "password in a URL, https", f"https://ci:{(ci := of(_ALNUM, 20))}@git.example.com/a.git", ci, url
        ),
        Planted("redis URL", f"redis://:{(redis := of(_ALNUM, 20))}@cache.internal:6379/0", redis, url),
        Planted("npm", f"npm_{(npm := of(_ALNUM, 36))}", npm, "npm: about access tokens"),
        Planted("PyPI", f"pypi-AgEIcHlwaS5vcmc{(pypi := of(_URL64, 150))}", pypi, "PyPI: API tokens"),
        Planted(
            "SendGrid", f"SG.{(grid := of(_URL64, 22) + '.' + of(_URL64, 43))}", grid, "SendGrid: API keys"
        ),
        token("Twilio key", "SK", of(_HEX, 32), "Twilio: API keys"),
        token("DigitalOcean", "dop_v1_", of(_HEX, 64), "DigitalOcean: personal access tokens"),
        token("Telegram bot", "", f"{of(string.digits, 10)}:AA{of(_URL64, 33)}", "Telegram: bot API"),
        token("Shopify", "shpat_", of(_HEX, 32), "Shopify: access tokens"),
        token("Databricks", "dapi", of(_HEX, 32), "Databricks: personal access tokens"),
        token("Vault", "hvs.", of(_URL64, 95), "HashiCorp Vault: tokens"),
        token("Docker Hub", "dckr_pat_", of(_URL64, 27), "Docker: personal access tokens"),
        token("xAI", "xai-", of(_ALNUM, 80), "xAI: API keys"),
        token("Groq", "gsk_", of(_ALNUM, 52), "Groq: API keys"),
        token("password, ini", "password = ", f"Tr0ub4dor&{of(_ALNUM, 6)}", "common configuration files"),
        token("password, env", "export DB_PASSWORD=", of(_ALNUM, 14), "common configuration files"),
        token("api_key, YAML", "api_key: ", of(_ALNUM, 32), "common configuration files"),
        Planted(
            "client_secret, JSON", f'"client_secret": "{(secret := of(_ALNUM, 30))}"', secret, "RFC 6749"
        ),
        *(Planted(*each) for each in prefixed_secrets(of)),
        *_addresses(),
        *_cards(),
    ]


def _addresses() -> list[Planted]:
    page = "RFC 5322, 3.4.1"
    texts = (
        "ada.lovelace@example.com",
        "first.last+billing@mail.example.co.uk",
        "o'hara_99@sub-domain.example.org",
        "x@example.museum",
        "mailto:anna-karin@example.se",
    )
    return [
        Planted(f"e-mail {number}", text, text.removeprefix("mailto:").partition("@")[0] + "@", page)
        for number, text in enumerate(texts)
    ]


#: Test numbers from the pages of Stripe, PayPal and Adyen; each passes Luhn's check.
_CARDS = (
    ("Visa", "4242424242424242"),
    ("Visa, spaces", "4012 8888 8888 1881"),
    ("Mastercard, dashes", "5555-5555-5555-4444"),
    ("Mastercard 2", "2223003122003222"),
    ("American Express", "3782 822463 10005"),
    ("Discover", "6011111111111117"),
    ("Diners", "3056 9300 0902 0004"),
    ("JCB", "3566002020360505"),
    ("UnionPay", "6205500000000000004"),
    ("Visa, dots", "4242.4242.4242.4242"),
    ("American Express, dots", "3782.822463.10005"),
)


def _cards() -> list[Planted]:
    page = "ISO/IEC 7812-1; Stripe: test cards"
    return [Planted(f"card {name}", number, number, page) for name, number in _CARDS]


def _json_in_json(text: str) -> str:
    return json.dumps({"a": json.dumps({"b": text})})


def _escaped(text: str) -> str:
    """JSON that escapes what it may: as PHP, Gson and .NET write it."""
    escapes = {one: f"\\u{ord(one):04x}" for one in "@=&+<>'~"}
    inner = json.dumps({"value": text})
    return "".join(escapes.get(each, each) for each in inner).replace("/", "\\/")


#: Ways in which a secret stands in a text.
FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: f"Here it is: {text} and nothing else.",
    "alone": lambda text: text,
    "quoted": lambda text: f"x = '{text}'\ny = \"{text}\"\n",
    "markdown": lambda text: f"Use `{text}`:\n```\n{text}\n```\n",
    "after a word": lambda text: f"The key is:{text}, right?",
    "in brackets": lambda text: f"see ({text}) [{text}] <{text}>",
    "URL-encoded": lambda text: f"https://example.com/cb?value={quote(text, safe='')}&next=1",
    "form-encoded": lambda text: f"value={quote_plus(text)}&next=1",
    "URL-encoded twice": lambda text: f"https://example.com/cb?value={quote(quote(text, safe=''), safe='')}",
    "JSON in JSON": _json_in_json,
    "JSON in JSON in JSON": lambda text: json.dumps({"c": _json_in_json(text)}),
    "JSON with escapes": _escaped,
    "JSON in a text": lambda text: f"Call it with {json.dumps({'x': text})} please",
    "URL in JSON": lambda text: json.dumps({"url": f"https://example.com/?q={quote(text, safe='')}"}),
    "CSV": lambda text: f"id,value\n1,{text}\n2,none\n",
    "beside Chinese": lambda text: f"密钥是{text}。请保密",
}


def pieces(core: str, length: int = 14) -> Iterator[str]:
    """Yield the parts of a secret that would still give it away; separators and lines are left out."""
    for line in core.splitlines():
        if len(line) <= length:
            yield line
        for start in range(0, len(line) - length + 1, length // 2):
            yield line[start : start + length]


#: Text that must stay as it is.
HARMLESS = (
    "def token_count(tokens: list[int]) -> int:\n    return len(tokens)\n",
    "password = getpass.getpass()\nsecret = os.environ['DB_SECRET']\n",
    "api_key = config.get('api_key')\nclient = Client(api_key=api_key)\n",
    "self.tokenizer = AutoTokenizer.from_pretrained(model_name_or_path)\n",
    "if (password != confirm_password) { throw new Error('passwords differ'); }",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8\nAuthor: nobody\n",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "md5 d41d8cd98f00b204e9800998ecf8427e",
    "id 123e4567-e89b-12d3-a456-426614174000 and 550E8400-E29B-41D4-A716-446655440000",
    "order 1234567890123456 of 2026-11-24T10:13:42.123456Z, serial 4111111111111112",
    "phone numbers, prices 1,299.00 USD, 3.14159265358979323846, 10.0.0.1, 192.168.1.254:8080",
    "2026-11-24 10:13:42 INFO 127.0.0.1 GET /api/v1/items?page=2&size=50 200 12ms",
    "arn:aws:sagemaker:eu-west-1:111122223333:endpoint/my-endpoint",
    "s3://my-bucket/models/qwen3-coder-30b/p-eagle/model.safetensors",
    "@decorator\ndef f(x): return x @ y\n# see user@ and @user on the site",
    "git clone git@github.com:vllm-project/vllm.git",
    "pip install 'transformers>=4.50' torch==2.9.0 # requirements",
    "https://example.com/path/to/page?utm_source=a&utm_medium=b#section-2",
    "The secret of success: practise. A password: something only you know. Token: a piece of a word.",
    "max_tokens=256, temperature=0.7, top_p=0.95, stop_token_ids=[151643]",
    "Basic training and Bearer bonds are not credentials. sk-learn, skip-list, task-force-1, risk-adjusted",
    "eyes only: eyJ is how many start. AKIA is a prefix, ghp_ too.",
    "import { useState } from 'react'; const [token, setToken] = useState<string | null>(null);",
    "-----BEGIN CERTIFICATE REQUEST----- is a header; -----BEGIN PUBLIC KEY----- is public.",
    "\u5bc6\u7801\u662f\u4ec0\u4e48\uff1f",
    "\u041f\u0430\u0440\u043e\u043b\u044c: \u0447\u0442\u043e \u044d\u0442\u043e?",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "0000 0000 0000 0000 and 1111-1111-1111-1111",
    "kubernetes.io/service-account-token, Authorization: none, Cookie: (empty)",
    "The password is hashed with SHA-256. The token is valid for 15min. A password is 12 characters long.",
    "The API key is base64-encoded and the private key is /etc/ssl/key1.pem. The secret is AES256-GCM.",
    "The password - at least 8 characters - is required. The token - 128 bits - is random.",
    "The password is reset_token_2 in the example; the access token is called my_api_token_1.",
    "A token 151643 ends it. token T5Tokenizer, password OAuth2PasswordBearer, secret SecretManagerV1Beta2",
    "pass 2 of 3, pass: 12 of 12 tests, first pass: test_login_v2, a second pass - 2nd of 3, bypass: x86_64",
    "sudo -u postgres psql; curl -u $USER:$PASS https://a.example; curl --user name:password; run -u 10:10",
    "Versions 1234.5678.9012.3456 and 4242.4242.4242.4241 are numbers, 10.1000.2000.3000 is one, too.",
    "a key-value store, fw_update_and_check_everything, re_compile_with_options, sl.exe, pat-down, fc-cache",
    "cache-key-d41d8cd98f00b204e9800998ecf8427e, AKIDO, LTAI, EAAA and ATATT3 are how they begin.",
    "Das Passwort ist geheim. La contrase\u00f1a es obligatoria. Le mot de passe est requis. A senha",
)
