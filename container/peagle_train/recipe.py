"""The library's recipe, with what a SageMaker job needs in addition.

`HeadRecipe` is NeMo AutoModel 0.7.0's ``TrainEagle3Recipe``: its target, its loss, its partition of
sequences, its steps. Added are the data, the head's shape, float32 master weights, no logits of context rows,
checkpoints of one writer, counts by depth, lines for CloudWatch, and an end between two steps when the job is
to stop.
"""

import importlib.metadata
import math
import resource
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from nemo_automodel.components.config.loader import ConfigNode
from nemo_automodel.components.distributed.mesh_utils import get_flat_mesh
from nemo_automodel.components.distributed.parallelizer import fsdp2_strategy_parallelize
from nemo_automodel.components.speculative.eagle import HFEagle3TargetModel, PEagleTrainerModule
from nemo_automodel.components.speculative.eagle.peagle_trainer import _kl_div_loss
from nemo_automodel.recipes._dist_utils import create_distributed_setup_from_config
from nemo_automodel.recipes.llm.train_eagle3 import TrainEagle3Recipe
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoModelForCausalLM

from peagle_train import Mistake, checkpoint, heads, masters, on_cpu, settings
from peagle_train.dataset import Batches, Channel, Documents, InOrder
from peagle_train.plan import Plan
from peagle_train.progress import Log, Pace, by_depth

LIBRARIES = ("nemo-automodel", "torch", "transformers", "safetensors")


class Stopped(Exception):
    """The job was asked to stop, and its checkpoint is complete."""


class CountingTrainer(PEagleTrainerModule):
    """The library's loss, with logits of charged rows only, and counts by depth.

    A row is charged if its loss counts. The others are keys and values for them: prompts, and in a partition
    the tokens before it. The counts say how often the draft's first choice is the target's.
    """

    def __init__(self, draft_model: Any, **others: Any) -> None:
        super().__init__(draft_model, **others)
        # Not buffers: they belong to no checkpoint, and no process shares them.
        self.counts = {mode: torch.zeros(3, self.num_depths, dtype=torch.float64) for mode in (True, False)}

    def _peagle_position_loss(  # type: ignore[no-untyped-def]
        self, ids, aux, target_logits, anchor, depth, positions, charged, row_length, seq_len
    ):
        """Return the sum of the charged rows' losses, their number, how many are right, and their number.

        NeMo AutoModel 0.7.0's method, but for the choice of rows before ``compute_logits``. A test compares
        loss and gradients with the library's.
        """
        draft, real = self.draft_model, depth == 0
        hidden = draft.forward_peagle(
            sampled_input_ids=torch.where(real, ids[positions], self.mask_token_id)[None],
            sampled_projected_hidden=torch.where(
                real[:, None],
                draft.project_hidden_states(aux[:, positions])[0],
                draft.masked_projected_hidden(),
            )[None],
            position_ids=positions[None],
            block_mask=draft.build_peagle_block_mask(
                anchor_pos=anchor, depth=depth, lengths=row_length, total_seq_len=seq_len
            ),
        )
        logits = draft.compute_logits(hidden[:, charged])[0]
        targets = target_logits[positions[charged]]
        if len(self.selected_token_ids) < targets.shape[-1]:
            targets = targets.index_select(-1, self.selected_token_ids)
        loss = _kl_div_loss(logits, targets).sum()
        right = logits.detach().argmax(dim=-1) == targets.argmax(dim=-1)
        self._count(depth[charged], right, loss.detach())
        number = charged.sum().to(loss.dtype)
        return loss, number, right.sum().to(loss.dtype), number

    def _count(self, depth: Any, right: Any, loss: Any) -> None:
        counts = self.counts[self.training] = self.counts[self.training].to(depth.device)
        counts[0].index_add_(0, depth, right.to(counts.dtype))
        counts[1].index_add_(0, depth, torch.ones_like(right, dtype=counts.dtype))
        counts[2, 0] += loss

    def take_counts(self, training: bool) -> Any:
        """Return the counts since the last call, by depth: right ones, all, and the sum of the losses."""
        counts = self.counts[training]
        self.counts[training] = torch.zeros_like(counts)
        return counts


class HeadRecipe(TrainEagle3Recipe):
    """The library's recipe for one job of SageMaker's."""

    compute_dtype: Any  # the library sets it: bfloat16 on a GPU, else float32

    def __init__(self, plan: Plan, stop: Callable[[], bool], say: Callable[[str], None] = print) -> None:
        self.plan, self.stop = plan, stop
        self.document = self._library_recipe()
        self._log = Log(plan.steps, say=say)
        super().__init__(ConfigNode(self.document))

    def _library_recipe(self) -> dict[str, Any]:
        plan, warm = self.plan, self.plan.warm_start
        token_map = warm / heads.TOKEN_MAP
        document = settings.recipe(
            plan.settings,
            target=str(plan.target.folder),
            attention=plan.target.attention,
            work=str(plan.work),
            warm_start=str(warm) if plan.head else None,
            draft_vocab=plan.settings.draft_vocab_size if token_map.exists() else None,
            token_map=str(token_map) if token_map.exists() else None,
            on_gpu=torch.cuda.is_available(),
            world=plan.world,
        )
        arguments = document["recipe_args"]
        if plan.head:
            arguments |= {"fc_norm": plan.head.fc_norm, "norm_output": plan.head.norm_output}
        arguments["log_every_steps"] = min(arguments["log_every_steps"], plan.steps)
        return document

    # --- what the library builds -------------------------------------------------------------------

    def setup(self) -> None:
        """Load the target, build or load the head, and resume from the newest checkpoint."""
        torch.manual_seed(self.plan.settings.seed)  # the library seeds after it has built the head
        super().setup()
        if self.plan.validation is not None:
            held_out = self._documents(self.plan.validation)
            self.val_dataloader: InOrder | None = InOrder(held_out, micro=1, **self._place())

    def _documents(self, channel: Channel) -> Documents:
        return Documents(
            channel.folder, channel.files, self.plan.target.vocab, self.plan.settings.sequence_length
        )

    def _place(self) -> dict[str, int]:
        return {"rank": self.dist_env.rank, "world": self.dist_env.world_size}

    def _build_train_dataloader(self, data_path: Any, split: Any) -> Batches:
        return Batches(
            self._documents(self.plan.training),
            seed=self.plan.settings.seed,
            micro=self.plan.settings.micro_batch_size,
            total=self.plan.batches,
            **self._place(),
        )

    def _setup_colocated_target(self, recipe_cfg: Any, target_path: Any, draft_base_config: Any) -> None:
        if self.device.type == "cuda":
            super()._setup_colocated_target(recipe_cfg, target_path, draft_base_config)
            return
        # The library asks for the current CUDA device; without one transformers loads the target.
        if self.compute_dtype == torch.float32:
            self.compute_dtype = on_cpu.compute_dtype(self.plan.target.dtype)
        self.target_model = AutoModelForCausalLM.from_pretrained(
            target_path, dtype=self.compute_dtype, attn_implementation=self.plan.target.attention
        )
        self.target_model.requires_grad_(False)
        if self.plan.settings.target_shards > 1:
            self._shard_target()
        self.target_wrapper = HFEagle3TargetModel(self.target_model, aux_layer_ids=recipe_cfg.aux_layer_ids)

    def _shard_target(self) -> None:
        """Shard the target over the processes, as the library does on GPUs, but without bfloat16."""
        self.dist_setup = create_distributed_setup_from_config(self.cfg, world_size=self.dist_env.world_size)
        self.device_mesh = self.dist_setup.mesh_context.device_mesh
        self.dp_mesh = get_flat_mesh(self.device_mesh, "dp")
        fsdp2_strategy_parallelize(self.target_model, self.device_mesh, mp_policy=MixedPrecisionPolicy())

    def _configure_peagle_draft_config(
        self, recipe_cfg: Any, draft_config: Any, draft_base_config: Any
    ) -> int:
        mask_token_id: int = super()._configure_peagle_draft_config(
            recipe_cfg, draft_config, draft_base_config
        )
        draft_config.update(self._shape())
        # The target is loaded by now; the head is built in float32, and computed in the target's dtype.
        self.compute_dtype, self.target_dtype = torch.float32, self.compute_dtype
        layers = draft_config["num_hidden_layers"]
        if draft_config.get("layer_types"):  # training has no window, but vLLM would take the target's
            draft_config["layer_types"] = ["full_attention"] * layers
        if draft_config.get("per_layer_config"):  # Gemma 4: keys beyond the head's layers are refused
            of_a_full_layer = next(iter(draft_config["per_layer_config"].values()))
            draft_config["per_layer_config"] = dict.fromkeys(range(layers), of_a_full_layer)
        return mask_token_id

    def _shape(self) -> dict[str, Any]:
        """The head's shape where it is not the target's; the library takes the target's."""
        chosen, head = self.plan.settings, self.plan.head
        shape = {
            "num_attention_heads": chosen.draft_num_attention_heads,
            "num_key_value_heads": chosen.draft_num_key_value_heads,
            "intermediate_size": chosen.draft_intermediate_size,
            "hidden_act": "silu",  # vLLM's head knows no other
        }
        if head:
            shape |= {"head_dim": head.head_dim, "max_position_embeddings": head.longest}
            shape |= {"attention_bias": head.attention_bias, "mlp_bias": head.mlp_bias}
        return {name: value for name, value in shape.items() if value is not None}

    def build_peagle_trainer(
        self, recipe_cfg: Any, selected_token_ids: Any, selected_token_mask: Any, mask_token_id: int
    ) -> Any:
        """Build the library's trainer, with counts by depth."""
        chosen = self.plan.settings
        if self.plan.head is None:
            heads.start_output(self.draft_model, self.plan.target, selected_token_ids)
        self._peagle_partitioned = chosen.sequence_partitions > 1
        masters.compute_in(self.target_dtype, self.draft_model)
        return CountingTrainer(
            self.draft_model,
            selected_token_ids=selected_token_ids,
            selected_token_mask=selected_token_mask,
            num_depths=chosen.num_depths,
            mask_token_id=mask_token_id,
            down_sample_ratio=chosen.down_sample_ratio,
            down_sample_ratio_min=chosen.down_sample_ratio_min,
            sequence_partitions=chosen.sequence_partitions,
        ).to(self.device)

    def _make_progress_bar(self, total: int | None = None, initial: int = 0) -> None:
        return None

    # --- the run -----------------------------------------------------------------------------------

    def train(self) -> None:
        """Train to the end.

        Raises:
            Stopped: the job was asked to stop; the checkpoint is complete.
            Mistake: the loss is NaN or infinite, or the GPU runs out of memory.
        """
        self._pace = Pace(self.runtime.global_step, self.plan.steps)
        if self._agreed(self.stop()):
            raise Stopped
        try:
            if self.runtime.global_step == 0:
                self._run_eval()
            self.run_train_validation_loop()
        except torch.OutOfMemoryError as error:
            raise Mistake(
                "the GPU is out of memory; use a shorter sequence_length, more sequence_partitions, "
                f"gradient_checkpointing or a larger instance ({str(error).splitlines()[0]})"
            ) from error

    def _maybe_save_step_checkpoint(self, epoch: int) -> bool:
        """Log, save, stop and validate as it is due; the library calls this after each step, everywhere."""
        step, plan = self.runtime.global_step, self.plan
        if step % self.log_every_steps == 0 or step == plan.steps:
            self._tell_interval(step)
        stop = self._agreed(self.stop()) and step < plan.steps
        saves = stop or step % plan.settings.checkpoint_every_steps == 0
        if saves:
            self.save_checkpoint(epoch, step)
        if stop:
            raise Stopped
        if plan.ends_an_epoch(step) and step < plan.steps:  # at the end the library does it
            self._run_eval()
        return saves

    def _agreed(self, wanted: bool) -> bool:
        """Return whether any process was asked to stop; all must end after the same step."""
        flag = torch.tensor(float(wanted), device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def _tell_interval(self, step: int) -> None:
        """Write the line of the steps since the last one, over all processes."""
        interval = figures(self._summed(self._module().take_counts(True)))
        tokens = self._summed(torch.tensor(float(self.train_dataloader.tokens)))
        if not math.isfinite(interval["loss"]):  # on every process, so that none waits for another
            raise Mistake(
                f"the loss is not finite after step {step}; use a lower learning_rate or a longer warm-up"
            )
        if self.dist_env.is_main:
            rate = self.lr_scheduler.get_last_lr()[0]
            pace = self._pace.at(step, int(tokens.item()))
            self._log.step(
                step, {"epoch": self.plan.epoch_at(step), **interval, "learning_rate": rate, **pace}
            )

    def _summed(self, value: Any) -> Any:
        whole = value.to(self.device)
        dist.all_reduce(whole)
        return whole

    def _run_eval(self) -> Any:
        """Measure the held-out documents, each time with the same sampled depths; the run's chance stays."""
        if self.val_dataloader is None:
            return None
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.plan.settings.seed + self.dist_env.rank)
            result = super()._run_eval()
        counts = self._summed(self._module().take_counts(False))
        if self.dist_env.is_main:
            self._log.validation(self.runtime.global_step, figures(counts))
        return result

    def _forward_batch(self, batch: Any, target_batch: Any = None) -> Any:
        """The library validates without partitions, in memory that a long sequence lacks; here with them."""
        if self.trainer_module.training or not self._peagle_partitioned:
            return super()._forward_batch(batch, target_batch)
        given, module = self._peagle_supervision(batch), self._module()
        cut = module.build_peagle_plan(given["loss_mask"])
        parts = [module(**given, peagle_segment=(cut, number)) for number in range(len(cut.units))]
        zero = torch.zeros((), device=self.device)
        valid = sum((part.valid_tokens for part in parts), zero)
        right = sum((part.accuracy * part.valid_tokens for part in parts), zero)
        return SimpleNamespace(
            loss=sum((part.loss for part in parts), zero),
            accuracy=right / valid.clamp_min(1),
            valid_tokens=valid,
        )

    # --- checkpoints and the result ----------------------------------------------------------------

    def save_checkpoint(self, epoch: int, step: int, *others: Any, **more: Any) -> None:
        """Save the head, the optimiser, the schedule and every process's chance; the first process writes."""
        chances: list[Any] = [None] * self.dist_env.world_size
        dist.all_gather_object(chances, self._chance())
        folder, newest = self.plan.folders.checkpoints, checkpoint.newest(self.plan.folders.checkpoints)
        if self.dist_env.is_main and (newest is None or newest.step != step):
            state = {
                "draft": masters.state_of(self._module().draft_model),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.lr_scheduler.state_dict(),
                "chance": chances,
            }
            checkpoint.save(
                folder, step, self.plan.run, self._log.history, lambda file: torch.save(state, file)
            )
            self._log.checkpoint(step)
        dist.barrier()

    def _chance(self) -> dict[str, Any]:
        states = {"cpu": torch.get_rng_state()}
        return {**states, "cuda": torch.cuda.get_rng_state()} if self.device.type == "cuda" else states

    def load_checkpoint(self, restore_from: str | None = None) -> None:
        """Resume from the newest checkpoint; the library calls this at the end of its set-up."""
        saved = checkpoint.newest(self.plan.folders.checkpoints)
        if saved is None:
            return
        state = torch.load(saved.folder / checkpoint.STATE, map_location="cpu", weights_only=True)
        masters.load_state(self._module().draft_model, state["draft"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["schedule"])
        chance = state["chance"][self.dist_env.rank]
        torch.set_rng_state(chance["cpu"])
        if "cuda" in chance:
            torch.cuda.set_rng_state(chance["cuda"])
        self.runtime.global_step = saved.step
        self.train_dataloader.done = min(
            saved.step * self.plan.settings.grad_accumulation_steps, self.plan.batches
        )
        self._log.history = {name: list(each) for name, each in saved.history.items()}
        if self.dist_env.is_main:
            self._log.resumed(saved.step)

    def vllm_config(self) -> dict[str, Any]:
        """Return the ``config.json`` that vLLM reads."""
        chosen = self.plan.settings
        assert chosen.aux_layer_ids is not None
        assert chosen.mask_token_id is not None
        draft = self._module().draft_model.config.to_dict()
        return heads.vllm_config(draft, chosen.aux_layer_ids, chosen.mask_token_id)

    def write_result(self) -> dict[str, Any]:
        """Write the head in vLLM's layout; return what ``training.json`` says. For the first process."""
        state = heads.without_shared(masters.state_of(self._module().draft_model), self.plan.target)
        parameters = heads.write_head(state, self.vllm_config(), self.plan.folders.model)
        return {
            "settings": settings.as_json(self.plan.settings),
            "recipe": self.document,
            "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
            "steps": self.runtime.global_step,
            "parameters": parameters,
            "seconds": round(self._pace.seconds, 1),
            "peak_memory_gib": peak_memory_gib(),
            "history": self._log.history,
        }


def figures(counts: Any) -> dict[str, float]:
    """Return loss and accuracy of all supervised positions, and the accuracy by depth."""
    right, of_them, losses = counts.tolist()
    each = [hits / total if total else None for hits, total in zip(right, of_them, strict=True)]
    whole = max(sum(of_them), 1.0)
    return {"loss": sum(losses) / whole, "accuracy": sum(right) / whole, **by_depth(each)}


def peak_memory_gib() -> float:
    """Return the most memory that this process needed: of its GPU, or of the machine without a GPU."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
