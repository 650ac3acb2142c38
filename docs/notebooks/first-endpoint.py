# %% [markdown]
# # From nothing to P-EAGLE in ten cells
#
# This notebook checks, plans, deploys, calls, measures and deletes an endpoint with a P-EAGLE draft head.
#
# The outputs below come from the **local SageMaker** (`peagle-sm local up`): the AWS API on this machine, with the
# real vLLM behind each endpoint. The model is SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), a small chat model: its
# answers are simple, and its figures on a CPU say nothing about a large model on a GPU. On AWS **one line differs**; a
# comment marks it.
#
# ```
# pip install ./toolkit/peagle-sm ./toolkit/peagle-bench ./toolkit/sagemaker-local jupyterlab
# peagle-sm local up --detach
# ```

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **The spec.** Every field but the name and the model has a default. On AWS, use another model, such as `gpt-oss-20b`.
# A path of a YAML file works as well.

# %%
spec = {
    "name": "first-p-eagle",
    "model": "smollm2-135m-instruct",
    "speculation": {"mode": "p-eagle"},
    "lifecycle": {"max_lifetime_hours": 2, "idle_minutes": 30},
}

# %% [markdown]
# **Check before you create.** `doctor` checks credentials, roles, quotas, the network, the guard and this machine. It
# raises no error; a program reads `checkup.ok`. Here it reports that the guard, which turns idle endpoints off, is not
# installed: run `peagle-sm guard install` once for each account.

# %%
checkup = peagle_sm.doctor(spec, session=session)
checkup

# %% [markdown]
# **The plan**: what `deploy` will create, in order, and what it costs.

# %%
peagle_sm.plan(spec, session=session)

# %% [markdown]
# **Deploy.** Without `yes=True` it shows the price and asks. It arms the lifetime limit before it creates the
# endpoint, so nothing runs forever if the kernel dies. `unguarded=True` deploys without the guard. That is enough for
# this short notebook; leave it out if the guard is installed.

# %%
endpoint = peagle_sm.deploy(spec, session=session, yes=True, unguarded=True)
endpoint.status()

# %% [markdown]
# **Stream an answer.** `show()` prints the answer as it arrives and returns its figures. To read the chunks yourself,
# write `for chunk in endpoint.stream(...)`. If a stream breaks, a typed error has the text so far.

# %%
question = {"role": "user", "content": "How do I reverse a string in Python?"}
endpoint.stream(messages=[question], max_tokens=128, temperature=0).show()

# %% [markdown]
# **The whole answer at once.** The *acceptance length* is the number of tokens for each pass of the target; without
# speculation it is 1.

# %%
question = {"role": "user", "content": "Why do leaves change their colour in autumn?"}
answer = endpoint.invoke(messages=[question], max_tokens=48, temperature=0)
print(answer.text)
answer.summary.acceptance_length

# %% [markdown]
# **Measure it** with HumanEval's prompts, one request at a time and then four. Warm-up and drain do not count, and no
# prompt is sent twice. If this client was the bottleneck, no figures are shown. (So few requests show how to measure,
# not how fast the endpoint is.)

# %%
measured = peagle_sm.bench(endpoint, prompts=12, requests=8, concurrency=(1, 4), max_tokens=48)
measured

# %% [markdown]
# **A report** in one HTML file.

# %%
print(peagle_sm.report(measured, title="My first endpoint").save("report.html"))

# %% [markdown]
# **Delete everything**: endpoint, config, model and schedule. `delete` checks that they are gone. A block
# `with peagle_sm.deploy(...) as endpoint:` deletes them at its end, also after an error.

# %%
print(*endpoint.delete().deleted, sep="\n")
