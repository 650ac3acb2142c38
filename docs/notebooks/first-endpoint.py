# %% [markdown]
# # From nothing to P-EAGLE in ten cells
#
# An endpoint with a P-EAGLE draft head: checked, planned, priced, deployed, asked, measured and deleted.
#
# Every output below was made by running this notebook against the **local SageMaker** (`peagle-sm local up`): the
# AWS API on this machine, with the real vLLM behind each endpoint, on small stand-in weights. They continue Python
# code, roughly; their figures say nothing of a large model on a GPU. On AWS **one line differs**, and it says so.
#
# ```
# pip install ./toolkit/peagle-sm ./toolkit/peagle-bench ./toolkit/sagemaker-local jupyterlab
# peagle-sm local up --detach
# ```

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **The spec.** Everything has a default; on AWS another model, such as `gpt-oss-20b`. It may as well be a YAML file's path.

# %%
spec = {
    "name": "first-p-eagle",
    "model": "tiny-code",
    "speculation": {"mode": "p-eagle"},
    "lifecycle": {"max_lifetime_hours": 2, "idle_minutes": 30},
}

# %% [markdown]
# **Look before anything is created.** `doctor` looks at credentials, roles, quotas, the network, the guard and this
# machine. It does not raise: `checkup.ok` tells a program. Here it finds that there is no guard yet, which turns idle
# endpoints off: `peagle-sm guard install`, once an account.

# %%
checkup = peagle_sm.doctor(spec, session=session)
checkup

# %% [markdown]
# **The plan**: what it will do, in order, and what it will cost.

# %%
peagle_sm.plan(spec, session=session)

# %% [markdown]
# **Deploy.** Without `yes=True` it shows the price and asks. The lifetime limit is armed before the endpoint is made,
# so that even a kernel that dies leaves nothing running for ever. `unguarded=True` does without the guard, which will
# do for the minutes of this notebook; with a guard installed leave it out.

# %%
endpoint = peagle_sm.deploy(spec, session=session, yes=True, unguarded=True)
endpoint.status()

# %% [markdown]
# **Ask it**, and see the answer come. `show()` prints it as it arrives and returns its figures; `for chunk in
# endpoint.stream(...)` is the same by hand. A stream that breaks raises a typed error with the text so far.

# %%
endpoint.stream(prompt="def fibonacci(n):\n", max_tokens=64, temperature=0).show()

# %% [markdown]
# **All at once**, as a value. *Acceptance length* is tokens for each pass of the target: 1 without speculation.

# %%
answer = endpoint.invoke(prompt="def is_prime(n):\n", max_tokens=48, temperature=0)
print(answer.text)
answer.summary.acceptance_length

# %% [markdown]
# **Measure it.** One request at a time and four, over prompts of HumanEval. Warm-up and drain are left out, no prompt
# is sent twice, and where this client was the bottleneck figures are withheld. (So few requests show how it goes, not
# how fast it is.)

# %%
measured = peagle_sm.bench(endpoint, prompts=12, requests=8, concurrency=(1, 4), max_tokens=48)
measured

# %% [markdown]
# **A page of it**: one file that needs nothing else.

# %%
print(peagle_sm.report(measured, title="My first endpoint").save("report.html"))

# %% [markdown]
# **Delete everything of it**: endpoint, config, model and schedule, proven gone. With
# `with peagle_sm.deploy(...) as endpoint:` this happens by itself, whatever goes wrong inside.

# %%
print(*endpoint.delete().deleted, sep="\n")
