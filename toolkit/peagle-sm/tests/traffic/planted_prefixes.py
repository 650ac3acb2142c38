"""Keys with a fixed prefix, and secrets in sentences, to plant in traffic: `planted` has the others.

Each is made from the format that the issuer documents or shows in an example, of seeded random characters.
"""

from __future__ import annotations

import string
from collections.abc import Callable

Of = Callable[[str, int], str]  #: (alphabet, length) -> random characters
Part = str | tuple[str, int]

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
URL64 = ALNUM + "-_"
UUID: tuple[Part, ...] = ((HEX, 8), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 12))

#: Name and page, then the parts: literal texts, and random characters.
PREFIXED: tuple[tuple[str, str, tuple[Part, ...]], ...] = (
    ("OpenRouter", "OpenRouter: authentication", ("sk-or-v1-", (HEX, 64))),
    ("Langfuse", "Langfuse: API keys", ("sk-lf-", *UUID)),
    ("Bedrock, long", "Amazon Bedrock: API keys", ("ABSK", (BASE64, 128), "==")),
    ("Bedrock, short", "Amazon Bedrock: API keys", ("bedrock-api-key-", (ALNUM, 300))),
    ("Tavily", "Tavily: authentication", ("tvly-dev-", (ALNUM, 32))),
    ("NVIDIA", "NVIDIA: NGC personal keys", ("nvapi-", (URL64, 64))),
    ("Cerebras", "Cerebras: API key", ("csk-", (LOWER, 48))),
    ("Together", "Together AI: API keys", ("tgp_v1_", (URL64, 43))),
    ("Fireworks", "Fireworks AI: API keys", ("fw_", (ALNUM, 24))),
    ("Pinecone", "Pinecone: API keys", ("pcsk_", (ALNUM, 6), "_", (ALNUM, 63))),
    ("Jina", "Jina AI: API keys", ("jina_", (HEX, 32), (URL64, 28))),
    ("Firecrawl", "Firecrawl: API reference", ("fc-", (HEX, 32))),
    ("LangSmith", "LangSmith: API keys", ("lsv2_pt_", (HEX, 32), "_", (HEX, 10))),
    ("ElevenLabs", "ElevenLabs: authentication", ("sk_", (HEX, 48))),
    ("Mailgun", "Mailgun: API keys", ("key-", (HEX, 32))),
    ("Brevo", "Brevo: API keys", ("xkeysib-", (HEX, 64), "-", (ALNUM, 16))),
    ("Resend", "Resend: API keys", ("re_", (ALNUM, 8), "_", (ALNUM, 24))),
    ("Square token", "Square: access tokens", ("sq0atp-", (URL64, 22))),
    ("Square secret", "Square: application secrets", ("sq0csp-", (URL64, 43))),
    ("Square token, new", "Square: access tokens", ("EAAA", (URL64, 60))),
    ("Meta", "Meta: Graph API access tokens", ("EAAC", (ALNUM, 160))),
    ("Braintree", "Braintree: OAuth", ("access_token$production$", (LOWER, 16), "$", (HEX, 32))),
    ("Plaid", "Plaid: access tokens", ("access-production-", *UUID)),
    ("Flutterwave", "Flutterwave: authentication", ("FLWSECK_TEST-", (LOWER, 32), "-X")),
    ("EasyPost", "EasyPost: API keys", ("EZAK", (ALNUM, 54))),
    ("Shippo", "Shippo: authentication", ("shippo_live_", (HEX, 40))),
    ("New Relic user", "New Relic: API keys", ("NRAK-", (UPPER, 27))),
    ("New Relic license", "New Relic: license key", ((HEX, 36), "NRAL")),
    ("New Relic license, EU", "New Relic: license key", ("eu01xx", (HEX, 26), "FFFFNRAL")),
    ("Grafana", "Grafana: service accounts", ("glsa_", (ALNUM, 32), "_", (HEX, 8))),
    ("Grafana Cloud", "Grafana Cloud: access policies", ("glc_", (BASE64, 100), "==")),
    ("Grafana, old", "Grafana: API keys", ("eyJrIjoi", (ALNUM, 84), "==")),
    ("Sentry user", "Sentry: auth tokens", ("sntryu_", (HEX, 64))),
    ("Dynatrace", "Dynatrace: token format", ("dt0c01.", (UPPER, 24), ".", (UPPER, 64))),
    ("PostHog", "PostHog: personal API keys", ("phx_", (ALNUM, 47))),
    ("Honeycomb", "Honeycomb: API keys", ("hcaik_", (LOWER, 58))),
    ("Supabase", "Supabase: access tokens", ("sbp_", (HEX, 40))),
    ("Supabase secret", "Supabase: API keys", ("sb_secret_", (URL64, 31))),
    ("PlanetScale", "PlanetScale: passwords", ("pscale_pw_", (URL64, 43))),
    ("Neon", "Neon: API keys", ("napi_", (LOWER, 64))),
    ("MongoDB Atlas", "MongoDB Atlas: service accounts", ("mdb_sa_sk_", (URL64, 40))),
    ("Aiven", "Aiven: service users", ("AVNS_", (URL64, 19))),
    ("Airtable", "Airtable: personal access tokens", ("pat", (ALNUM, 14), ".", (HEX, 64))),
    ("Terraform", "HCP Terraform: API tokens", ((ALNUM, 14), ".atlasv1.", (ALNUM, 67))),
    ("Pulumi", "Pulumi: access tokens", ("pul-", (HEX, 40))),
    ("Doppler", "Doppler: auth token formats", ("dp.pt.", (ALNUM, 43))),
    ("Doppler service", "Doppler: auth token formats", ("dp.st.prd.", (ALNUM, 43))),
    ("1Password service", "1Password: service accounts", ("ops_eyJ", (ALNUM, 300))),
    (
        "1Password secret key",
        "1Password: Secret Key",
        ("A3-", (UPPER, 6), "-", (UPPER, 6), *(("-", (UPPER, 5)) * 4)),
    ),
    ("age", "age: specification", ("AGE-SECRET-KEY-1", (UPPER, 58))),
    ("Tailscale", "Tailscale: key prefixes", ("tskey-auth-", (ALNUM, 12), "CNTRL-", (ALNUM, 32))),
    ("Heroku", "Heroku: authorization tokens", ("HRKU-", (URL64, 60))),
    ("Netlify", "Netlify: access tokens", ("nfp_", (ALNUM, 36))),
    ("Fly.io", "Fly.io: access tokens", ("fm2_", (BASE64, 200))),
    ("Cloudflare origin", "Cloudflare: origin CA keys", ("v1.0-", (HEX, 24), "-", (HEX, 146))),
    ("Alibaba", "Alibaba Cloud: AccessKey pairs", ("LTAI", (ALNUM, 20))),
    ("Tencent", "Tencent Cloud: access keys", ("AKID", (ALNUM, 32))),
    ("Yandex", "Yandex Cloud: API keys", ("AQVN", (URL64, 36))),
    ("Azure DevOps", "Azure DevOps: access tokens", ((ALNUM, 76), "AZDO", (ALNUM, 4))),
    ("Azure, annotated", "Microsoft: annotated keys", ((ALNUM, 52), "JQQJ99", (ALNUM, 26))),
    ("Postman", "Postman: API keys", ("PMAK-", (HEX, 24), "-", (HEX, 34))),
    ("Figma", "Figma: personal access tokens", ("figd_", (URL64, 40))),
    ("Atlassian", "Atlassian: API tokens", ("ATATT3", (URL64, 186))),
    ("Bitbucket", "Bitbucket: app passwords", ("ATBB", (ALNUM, 32))),
    ("Linear OAuth", "Linear: OAuth", ("lin_oauth_", (HEX, 64))),
    ("HubSpot", "HubSpot: private apps", ("pat-eu1-", *UUID)),
    ("Typeform", "Typeform: access tokens", ("tfp_", (URL64, 59))),
    ("Contentful", "Contentful: access tokens", ("CFPAT-", (URL64, 43))),
    ("ClickUp", "ClickUp: personal tokens", ("pk_", (string.digits, 8), "_", (UPPER, 32))),
    ("Dropbox", "Dropbox: OAuth guide", ("sl.", (URL64, 136))),
    ("Buildkite", "Buildkite: API access tokens", ("bkua_", (HEX, 40))),
    ("CircleCI", "CircleCI: API tokens", ("CCIPAT_", (ALNUM, 22), "_", (HEX, 40))),
    ("SonarQube", "SonarQube: tokens", ("squ_", (HEX, 40))),
    ("JFrog reference", "JFrog: reference tokens", ("cmVmd", (ALNUM, 59))),
    ("RubyGems", "RubyGems: API keys", ("rubygems_", (HEX, 48))),
    ("NuGet", "NuGet: API keys", ("oy2", (LOWER, 43))),
    ("crates.io", "crates.io: API tokens", ("cio", (ALNUM, 32))),
    ("Clojars", "Clojars: deploy tokens", ("CLOJARS_", (LOWER, 60))),
    ("Prefect", "Prefect: API keys", ("pnu_", (ALNUM, 36))),
    ("LaunchDarkly", "LaunchDarkly: SDK keys", ("sdk-", *UUID)),
    ("ReadMe", "ReadMe: API keys", ("rdme_", (LOWER, 70))),
    (
        "Discord webhook",
        "Discord: webhooks",
        ("https://discord.com/api/webhooks/", (string.digits, 19), "/", (URL64, 68)),
    ),
    # What people write in sentences and commands.
    ("password is", "a sentence", ("my password is ", (ALNUM, 12))),
    ("password is, a colon", "a sentence", ("My password is: ", (ALNUM, 12))),
    ("password, a dash", "a sentence", ("Password - ", (ALNUM, 12))),
    ("password, nothing between", "a sentence", ("password ", (ALNUM, 12))),
    ("passphrase is, without capitals", "a sentence", ("the passphrase is ", (LOWER, 9))),
    ("pass", "a sentence", ("user: ada pass: ", (ALNUM, 12))),
    ("api key, a blank", "a sentence", ("api key: ", (HEX, 32))),
    ("api key is", "a sentence", ("the API key is ", (HEX, 32))),
    ("secret key, a dash", "a sentence", ("Secret Key - ", (ALNUM, 24))),
    ("token is", "a sentence", ("your token is ", (ALNUM, 24))),
    ("Passwort", "a sentence", ("Passwort: ", (ALNUM, 10))),
    ("Passwort ist", "a sentence", ("Mein Passwort ist ", (ALNUM, 10))),
    ("mot de passe", "a sentence", ("mot de passe : ", (ALNUM, 10))),
    ("contrase\u00f1a es", "a sentence", ("la contrase\u00f1a es ", (ALNUM, 10))),
    ("curl", "curl: manual, -u", ("curl -u deploy:", (ALNUM, 14))),
)


def prefixed_secrets(of: Of) -> list[tuple[str, str, str, str]]:
    """Make each one: its name, its text, its secret part (from the first random character on), its page."""
    rows = []
    for name, page, parts in PREFIXED:
        written = [part if isinstance(part, str) else of(*part) for part in parts]
        first = next(place for place, part in enumerate(parts) if not isinstance(part, str))
        rows.append((name, "".join(written), "".join(written[first:]), page))
    return rows
