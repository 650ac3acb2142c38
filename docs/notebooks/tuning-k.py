# %% [markdown]
# # Tuning K
#
# K is `num_speculative_tokens`: how many tokens the head drafts before the target checks them. Too few, and passes of
# the target are spent on too little; too many, and drafts are thrown away. The best K depends on the head, on the
# hardware, on the load, and on **your** prompts.
#
# Every output was made by running this notebook against the **local SageMaker** with the real vLLM, on small stand-in
# weights: the K found here is that of a small model on a CPU. On AWS **one line differs**, and so does the price.

# %%
from pathlib import Path

import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **A spec in a file**, since the K that is found goes into it.

# %%
Path("peagle.yaml").write_text("""\
name: tuned-code
model: tiny-code
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
# **Tune.** The model comes up without speculation and with it. A few K are measured, acceptance and the time of a step
# are fitted, the other K predicted, the best ones measured again, and everything is deleted. Here, and in our own
# container, K changes inside one engine; stock images need a deployment for each K. Without `yes=True` it says first
# what it costs at most, and asks.

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
# **What it chose, and why.** Of K that cannot be told apart the smaller one is chosen: it wastes less when the load
# grows.

# %%
print(tuned.k)
print(*tuned.reasons, sep="\n")

# %% [markdown]
# **The curve**, as data for your own plots. K=0 is no speculation, the rate to beat.

# %%
for point in sorted(tuned.fits[0].points, key=lambda point: point.k):
    how = "measured" if point.measured else "predicted"
    print(f"K={point.k}  {point.otps:7.1f} tokens/s  accepted {point.acceptance_length:.2f}  {how}")

# %% [markdown]
# **It stands in the spec now**, its evidence above it; commit it, and `peagle-sm deploy` uses it.

# %%
print(Path("peagle.yaml").read_text())
