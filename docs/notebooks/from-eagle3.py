# %% [markdown]
# # Moving from EAGLE-3 to P-EAGLE
#
# An EAGLE-3 head drafts K tokens in K passes, a P-EAGLE head in one; the target checks every token in both, so the
# answers stay its own. This notebook moves an endpoint over and proves three things on the way: that the new one
# answers as the target does, whether it is faster, and that the data can tell.
#
# Every output was made by running this notebook against the **local SageMaker** with the real vLLM, on small stand-in
# weights: the figures compare the modes on one machine, and say nothing of a large model on a GPU. On AWS **one line
# differs**.

# %%
import peagle_sm

session = peagle_sm.make_session(local=True)  # the one line that differs: on AWS, make_session()

# %% [markdown]
# **What you have**, and what changes: the mode, and the head that fits it. `heads list` and `heads check` say which
# head that is; a P-EAGLE head is another training, not another flag.

# %%
common = {"model": "tiny-code", "lifecycle": {"max_lifetime_hours": 2}}
old_spec = {
    **common,
    "name": "code-eagle3",
    "speculation": {"mode": "eagle3", "draft_head": "tiny-code-eagle3"},
}
new_spec = {
    **common,
    "name": "code-p-eagle",
    "speculation": {"mode": "p-eagle", "draft_head": "tiny-code-p-eagle"},
}
plain_spec = {**common, "name": "code-plain", "speculation": {"mode": "none"}}

# %%
peagle_sm.plan(new_spec, session=session)

# %% [markdown]
# **Beside the old one.** The old endpoint goes on serving. A third one, without speculation, is the judge of the
# answers; it lives for this notebook only.

# %%
go = {"session": session, "yes": True, "unguarded": True}
old = peagle_sm.deploy(old_spec, **go)
new = peagle_sm.deploy(new_spec, **go)
plain = peagle_sm.deploy(plain_spec, **go)
new.status()

# %% [markdown]
# **Are the answers the target's own?** Greedy answers must equal those without speculation, or differ by no more than
# those differ from themselves; a check that cannot tell says so. Before a real move leave `quick`, `checks` and
# `prompts` out: the more is asked, the smaller the fault that is found.

# %%
proof = peagle_sm.verify(
    new, baseline=plain, quick=True, prompts=8, max_tokens=48, checks=["greedy", "stop-strings", "streaming"]
)
proof

# %%
assert proof.passed is not False, "do not move: the answers differ"

# %% [markdown]
# **Which is faster?** Both are up and take turns, prompt by prompt, so that a slow minute of the machine hits both. The
# ratio comes with its 95% interval; one that contains 1 reads "no significant difference". The first arm is also set beside
# itself, a pair whose ratio is 1: if that fails, nothing else is believed.

# %%
duel = peagle_sm.compare(old, new, prompts=10, max_tokens=64)
duel

# %% [markdown]
# A ratio is of two factors, up to rounding: how many tokens a pass of the target brings (the head's own, on any
# hardware), and how long a pass takes.

# %%
for pair in duel.comparisons:
    if not pair.control and pair.acceptance_ratio and pair.step_time_ratio:
        acceptance, step_time = pair.acceptance_ratio.value, pair.step_time_ratio.value
        print(
            f"{pair.faster} over {pair.slower}: {pair.ratio.value:.2f} ="
            f" acceptance {acceptance:.2f} x step time {step_time:.2f}"
        )

# %% [markdown]
# **The report for the pull request**, with the proof in it: `print(report.markdown)`, or `report.save("move.html")`.

# %%
report = peagle_sm.report(proof, duel, title="From EAGLE-3 to P-EAGLE")
report

# %% [markdown]
# **Move.** Point your clients at the new name; then turn the old one off. (`peagle-sm deploy` with the old name and the
# new speculation is the other way: an update in place, rolled back by itself when the new engine does not come up.)

# %%
for each in (plain, old, new):
    print(*each.delete().deleted, sep="\n")
