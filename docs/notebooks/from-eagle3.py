# %% [markdown]
# # Moving from EAGLE-3 to P-EAGLE
#
# An EAGLE-3 head drafts K tokens in K passes, a P-EAGLE head in one pass. In both modes the target checks every token,
# so the answers are the target's own. This notebook moves an endpoint to P-EAGLE. Before the move it checks that the
# answers are the target's, and measures which endpoint is faster.
#
# The outputs come from the **local SageMaker** with the real vLLM, on SmolLM2-135M-Instruct (Hugging Face, Apache-2.0).
# The figures compare the modes on one CPU and say nothing about a large model on a GPU. On AWS **one line differs**.

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **The old and the new spec.** The mode changes, and the head with it: an EAGLE-3 head cannot draft in parallel, so
# P-EAGLE needs a head that was trained for it. `heads list` shows the known heads, `heads check` checks yours.

# %%
common = {"model": "smollm2-135m-instruct", "lifecycle": {"max_lifetime_hours": 2}}
old_spec = {
    **common,
    "name": "chat-eagle3",
    "speculation": {"mode": "eagle3", "draft_head": "smollm2-135m-instruct-eagle3"},
}
new_spec = {
    **common,
    "name": "chat-p-eagle",
    "speculation": {"mode": "p-eagle", "draft_head": "smollm2-135m-instruct-p-eagle"},
}
plain_spec = {**common, "name": "chat-plain", "speculation": {"mode": "none"}}

# %%
peagle_sm.plan(new_spec, session=session)

# %% [markdown]
# **Deploy the new endpoint beside the old one**, which still serves. A third endpoint without speculation gives the
# answers to compare with. This notebook deletes it at the end.

# %%
go = {"session": session, "yes": True, "unguarded": True}
old = peagle_sm.deploy(old_spec, **go)
new = peagle_sm.deploy(new_spec, **go)
plain = peagle_sm.deploy(plain_spec, **go)
new.status()

# %% [markdown]
# **Are the answers the target's own?** Greedy answers must equal those without speculation, or differ no more than two
# runs without speculation differ. If a check has too little data, it says so. Before a real move, leave out `quick`,
# `checks` and `prompts`: more prompts find smaller faults.

# %%
proof = peagle_sm.verify(
    new, baseline=plain, quick=True, prompts=8, max_tokens=48, checks=["greedy", "stop-strings", "streaming"]
)
proof

# %%
assert proof.passed is not False, "do not move: the answers differ"

# %% [markdown]
# **Which is faster?** The two endpoints take turns, prompt by prompt, so a slow minute of the machine affects both. The
# ratio has a 95% interval; if the interval contains 1, the result is "no significant difference". As a control, the
# first endpoint is also compared with itself, where the ratio must be 1. If that fails, there is no verdict.

# %%
duel = peagle_sm.compare(old, new, prompts=10, max_tokens=64)
duel

# %% [markdown]
# The ratio is the product of two factors, up to rounding. One is the number of tokens for each pass of the target; it
# depends on the head and the prompts, not on the hardware. The other is the time of a pass.

# %%
for pair in duel.comparisons:
    if not pair.control and pair.acceptance_ratio and pair.step_time_ratio:
        acceptance, step_time = pair.acceptance_ratio.value, pair.step_time_ratio.value
        print(
            f"{pair.faster} over {pair.slower}: {pair.ratio.value:.2f} ="
            f" acceptance {acceptance:.2f} x step time {step_time:.2f}"
        )

# %% [markdown]
# **A report for the pull request**, with both results: `print(report.markdown)`, or `report.save("move.html")`.

# %%
report = peagle_sm.report(proof, duel, title="From EAGLE-3 to P-EAGLE")
report

# %% [markdown]
# **Move.** Change the endpoint's name in your clients, then delete the old endpoint. (Or run `peagle-sm update` with the
# old name and the new speculation: it updates in place, and SageMaker rolls back if the new engine does not start.)

# %%
for each in (plain, old, new):
    print(*each.delete().deleted, sep="\n")
