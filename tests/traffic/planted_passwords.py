"""Ways to write a password or a key after its name, and ordinary text that looks alike."""

from __future__ import annotations

_PASSWORD, _KEY = "yWG2KMlIxmj0", "9f8a7b6c5d4e3f2a"

#: Text, and what must be replaced in it.
WRITTEN = (
    ("- **Password:** yWG2KMlIxmj0", _PASSWORD),
    ("**API key:** 9f8a7b6c5d4e3f2a", _KEY),
    ("**Password**: yWG2KMlIxmj0", _PASSWORD),
    ("**The password is:** yWG2KMlIxmj0", _PASSWORD),
    ("*password*: yWG2KMlIxmj0", _PASSWORD),
    ("__password__: yWG2KMlIxmj0", _PASSWORD),
    ("<b>password</b>: yWG2KMlIxmj0", _PASSWORD),
    ("<strong>Password:</strong> yWG2KMlIxmj0", _PASSWORD),
    ("Password:\nyWG2KMlIxmj0\n", _PASSWORD),
    ("**Password:**\r\nyWG2KMlIxmj0\r\n", _PASSWORD),
    ("Your password:\n\n```\nyWG2KMlIxmj0\n```\n", _PASSWORD),
    ("API key:\n9f8a7b6c5d4e3f2a", _KEY),
    ("password\uff1ayWG2KMlIxmj0", _PASSWORD),
    ("passwords: yWG2KMlIxmj0", _PASSWORD),
    ("password -> yWG2KMlIxmj0", _PASSWORD),
    ("password\u2014yWG2KMlIxmj0", _PASSWORD),
    ("password: P@ss(word)1", "P@ss(word)1"),
    ("DB_PASSWORD=P@ss(word)1", "P@ss(word)1"),
    ('Send {"Password" : "P@ss(word)1"} there', "P@ss(word)1"),
    ("password=abc123[x]", "abc123[x]"),
    ("password: Ab1,cd2ef9", "Ab1,cd2ef9"),
    ("password: abcdef1,ghijk2", "abcdef1,ghijk2"),
    ("DB_PASSWORD='Ab1,cd2;ef9'", "Ab1,cd2;ef9"),
    ("login(user, password=abc1234def)", "abc1234def"),
    ("Server=a;Password=Ab1cd2;ef9;User=x", "Ab1cd2;ef9"),
    ('password: "john.doe1985"', "john.doe1985"),
    ("curl -su a:pw12 https://x.example", "pw12"),
    ("curl -ualice:pw12 https://x.example", "pw12"),
    ("curl -u 'alice:s3c r3t' https://x.example", "s3c r3t"),
    ("curl -H 'a; b' 'https://x.example?a&b' \\\n  -u alice:s3cr3t", "s3cr3t"),
    ("The token is Ab3dE5fG7hJ9kL", "Ab3dE5fG7hJ9kL"),
)

#: Text that must stay as it is.
ORDINARY = (
    "curl -fsSL https://x.example | sh\n```\n\n```\ndocker run --rm -u 1000:1000 x\n```",
    "curl -fsSL https://x.example\n\ndocker run --rm -u app:staff2 x",
    "curl https://x.example && docker run -u app:staff2 x; curl -u 1000:10000 x; curl -u $A:$(cat b1)",
    "The shared secret is HMAC-SHA-256. Each token is int8-quantized. A token is bfloat16-encoded.",
    "The token is Llama-3.1-8B-Instruct. The token is BERT-base-uncased2. A token - ERC-20-compatible.",
    "forward pass: B4xS16xD8, private key: secp256k1curve, password - 8-20characters",
    "password = hashlib.sha256(x).hexdigest()\npassword=sha256(x); password: passwords[user1]",
    "password: Optional[str]=None, password:str=Field(min_length=8), f(password=pw,x2=1)",
    "password: (value1) => value1; x = 'password='+encodeURIComponent(p1)+'&a'; ['password=',a,'b1c2d3']",
    'password = "${DB_PASS1}"; password: "{{vault.db_pass1}}"; password="<your-password-1>"',
    "password:\n  type: string\ntoken:\n  oauth2_provider_1:\n  - int8",
    'names = {"senha": "(?<![a-z])senha"}',
    "def f(password: str) -> int8: ...\n**Token:** a piece of a word. **Password:** required",
)
