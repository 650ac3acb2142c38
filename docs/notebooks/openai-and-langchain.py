# %% [markdown]
# # Call an endpoint with the OpenAI SDK and with LangChain
#
# Every endpoint has OpenAI's chat completions API, on AWS and here. OpenAI's client and LangChain work unchanged.
# [openai.md](../how-to/openai.md) also shows curl and `peagle-sm serve`.
#
# The outputs come from the **local SageMaker** with the real vLLM, on SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), a
# small chat model. On AWS **one line differs**.
#
# ```
# pip install "./toolkit/peagle-sm[openai]" langchain-openai jupyterlab
# ```

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %%
spec = {
    "name": "chat-for-clients",
    "model": "smollm2-135m-instruct",
    "speculation": {"mode": "p-eagle"},
    "lifecycle": {"max_lifetime_hours": 2},
}
endpoint = peagle_sm.deploy(spec, session=session, yes=True, unguarded=True)
endpoint.status()

# %% [markdown]
# **OpenAI's SDK.** `endpoint.openai()` returns OpenAI's client with the endpoint's address. For each request it makes a
# new bearer token from your AWS credentials. The model's name is empty, because an endpoint has one model.

# %%
client = endpoint.openai()
question = [{"role": "user", "content": "How do I reverse a string in Python?"}]
answer = client.chat.completions.create(model="", messages=question, max_tokens=64, temperature=0)
print(answer.choices[0].message.content)
print(answer.usage.completion_tokens, "tokens")

# %% [markdown]
# **Streaming** works as always with this SDK.

# %%
stream = client.chat.completions.create(
    model="", messages=question, max_tokens=64, temperature=0, stream=True
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="")

# %% [markdown]
# **asyncio.** A notebook already has an event loop, so `await` works in a cell.

# %%
async with endpoint.async_openai() as aclient:
    again = await aclient.chat.completions.create(model="", messages=question, max_tokens=64, temperature=0)
again.choices[0].message.content == answer.choices[0].message.content

# %% [markdown]
# **LangChain.** `ChatOpenAI` takes the address, and a function that returns the key. It calls the function before each
# request, so a program can run for days. The key is a bearer token that is signed with your AWS credentials. Whoever has
# it can call the endpoint until it expires: do not print it.

# %%
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

from peagle_sm.aws.session.signing import bearer_token

chat = ChatOpenAI(
    model="",
    base_url=str(client.base_url),
    api_key=lambda: bearer_token(session, hours=1).token,
    max_tokens=64,
    temperature=0,
)
chain = ChatPromptTemplate.from_template("How do I {task} in Python?") | chat
print(chain.invoke({"task": "reverse a string"}).content)

# %% [markdown]
# The same chain as a stream, and with three questions at once.

# %%
for part in chain.stream({"task": "reverse a string"}):
    print(part.content, end="")

# %%
tasks = ("sort a list", "read a file", "add two numbers")
answers = chain.batch([{"task": task} for task in tasks])
{task: answer.usage_metadata["output_tokens"] for task, answer in zip(tasks, answers)}

# %% [markdown]
# **peagle-sm's own stream** also shows how many draft tokens were accepted. If a stream breaks, a typed error has the
# text so far.

# %%
endpoint.stream(messages=question, max_tokens=64, temperature=0).show()

# %%
print(*endpoint.delete().deleted, sep="\n")
