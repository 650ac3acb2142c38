# %% [markdown]
# # Calling it from the OpenAI SDK and from LangChain
#
# Every endpoint speaks OpenAI's chat completions, on AWS and here: OpenAI's own client and LangChain work as they are.
# [openai.md](../how-to/openai.md) has curl, `peagle-sm serve` and the rest.
#
# Every output was made by running this notebook against the **local SageMaker** with the real vLLM, on small stand-in
# weights that continue Python code, roughly. On AWS **one line differs**.
#
# ```
# pip install "./toolkit/peagle-sm[openai]" langchain-openai jupyterlab
# ```

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %%
spec = {
    "name": "code-for-clients",
    "model": "tiny-code",
    "speculation": {"mode": "p-eagle"},
    "lifecycle": {"max_lifetime_hours": 2},
}
endpoint = peagle_sm.deploy(spec, session=session, yes=True, unguarded=True)
endpoint.status()

# %% [markdown]
# **OpenAI's SDK.** `endpoint.openai()` is OpenAI's own client, with the address set and a bearer token that is made
# anew for each request from your AWS credentials. The model's name is empty: an endpoint has one model.

# %%
client = endpoint.openai()
question = [{"role": "user", "content": "def add(a, b):"}]
answer = client.chat.completions.create(model="", messages=question, max_tokens=32, temperature=0)
print(answer.choices[0].message.content)
print(answer.usage.completion_tokens, "tokens")

# %% [markdown]
# **Streaming**, as everywhere with this SDK.

# %%
stream = client.chat.completions.create(
    model="", messages=question, max_tokens=32, temperature=0, stream=True
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="")

# %% [markdown]
# **asyncio.** A notebook has an event loop already, so `await` works in a cell.

# %%
async with endpoint.async_openai() as aclient:
    again = await aclient.chat.completions.create(model="", messages=question, max_tokens=32, temperature=0)
again.choices[0].message.content == answer.choices[0].message.content

# %% [markdown]
# **LangChain.** `ChatOpenAI` takes an address, and a function for the key: a bearer token, signed with your AWS
# credentials and asked for before each request, so that a program may run for days. A token is as good as the
# credentials while it lasts: do not print it.

# %%
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

from peagle_sm.aws.session.signing import bearer_token

chat = ChatOpenAI(
    model="",
    base_url=str(client.base_url),
    api_key=lambda: bearer_token(session, hours=1).token,
    max_tokens=32,
    temperature=0,
)
chain = ChatPromptTemplate.from_template("def {name}({arguments}):") | chat
print(chain.invoke({"name": "add", "arguments": "a, b"}).content)

# %% [markdown]
# The same chain as a stream, and three questions at once.

# %%
for part in chain.stream({"name": "add", "arguments": "a, b"}):
    print(part.content, end="")

# %%
names = ("subtract", "multiply", "divide")
answers = chain.batch([{"name": name, "arguments": "a, b"} for name in names])
{name: answer.usage_metadata["output_tokens"] for name, answer in zip(names, answers)}

# %% [markdown]
# **Our own reader**, for what OpenAI's API does not say: how many drafts were accepted, and typed errors with the text
# so far when a stream breaks.

# %%
endpoint.stream(messages=question, max_tokens=32, temperature=0).show()

# %%
print(*endpoint.delete().deleted, sep="\n")
