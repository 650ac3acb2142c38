# %% [markdown]
# # Tune K
#
# K is `num_speculative_tokens`: how many tokens the head drafts before the target checks them. With a small K the target
# needs more passes; with a large K more draft tokens are rejected. The best K depends on the head, the hardware, the
# load, and **your** prompts.
#
# The outputs come from the **local SageMaker** with the real vLLM, on SmolLM2-135M-Instruct (Hugging Face, Apache-2.0),
# so this K is right for a small model on a CPU only. On AWS **one line differs**, and so does the price.

# %%
from pathlib import Path

import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **A spec in a file**: `tune` writes the chosen K into it.

# %%
Path("peagle.yaml").write_text("""\
name: tuned-chat
model: smollm2-135m-instruct
speculation:
  mode: p-eagle
lifecycle:
  max_lifetime_hours: 2
""")
peagle_sm.plan("peagle.yaml", session=session)

# %% [markdown]
# **Your traffic.** `workload` is a name (`humaneval`, `mt-bench`, `synthetic:1024/256`) or a file:
# JSON lines of OpenAI bodies, or what SageMaker's data capture wrote.
#
# **Tune.** `tune` deploys the model without and with speculation and measures a few K. It fits acceptance and step time,
# predicts the other K, measures the best ones again, and deletes everything. Here, and with this project's container, K
# changes inside one engine; other images need one deployment for each K. Without `yes=True` it shows the highest price
# first, and asks.

# %%
tuned = peagle_sm.tune(
    "peagle.yaml",
    session=session,
    concurrency=(1,),
    max_k=6,
    requests=6,
    max_tokens=48,
    yes=True,
    unguarded=True,
)
tuned

# %% [markdown]
# **The chosen K, and the reasons.** If the data cannot separate two K, `tune` chooses the smaller one, which wastes less
# when the load grows.

# %%
print(tuned.k)
print(*tuned.reasons, sep="\n")

# %% [markdown]
# **The curve**, as data for your own plots. K=0 is the rate without speculation.

# %%
for point in sorted(tuned.fits[0].points, key=lambda point: point.k):
    how = "measured" if point.measured else "predicted"
    print(f"K={point.k}  {point.otps:7.1f} tokens/s  accepted {point.acceptance_length:.2f}  {how}")

# %% [markdown]
# **The spec has the new K now**, with the evidence in a comment above it. Commit the file, and deploy it with
# `peagle-sm deploy`.

# %%
print(Path("peagle.yaml").read_text())
