"""Resolution of a spec: defaults from catalogue and context, and missing facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from peagle_sm.core.catalog import (
    GPU_OVERHEAD_GB,
    GPU_SHARE,
    SPECULATIVE_CONFIG,
    Catalog,
    HeadEntry,
    ImageFacts,
    InstanceEntry,
    JumpStartEntry,
    ModelEntry,
    Vocabulary,
    kv_cache_gb,
)
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.prices import NOT_ASKED, ListedPrice, PriceEntry, choose_price
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Source
from peagle_sm.core.spec.lock import Lock, Place, mismatches
from peagle_sm.core.spec.modes import Mode, ModeFacts, facts_of
from peagle_sm.core.spec.validation import suggest
from peagle_sm.core.words import Finding

CONTAINER_CHANNEL = "eagle"
PLACEHOLDER_ACCOUNT = "000000000000"
"""Account of a plan that is made without credentials, and of a template before CloudFormation fills it in."""
DEFAULT_REGION = "us-east-1"
"""Region of a plan if neither option, environment, spec nor profile names one."""
JUMPSTART_HEAD = "jumpstart"
"""Name for a draft head of a JumpStart config that is not in the catalogue."""

_LONGEST_WAIT_S = 3600
_REPLICA_GPUS = (1, 2, 4, 8)
"""Tensor parallel sizes that are tried for an own model, if the spec names neither size nor instance."""
_SIZES = ("2xlarge", "4xlarge", "xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge", "48xlarge")
"""Sizes of instances with equal GPUs, best first: with 2xlarge the host's memory holds the weights."""
_LOCK = "Run `peagle-sm lock SPEC`; with --local for the local server."


@dataclass(frozen=True)
class Context:
    """Place and time of a plan.

    ``local`` is True for the local SageMaker; ``image_uris``, ``artifacts`` and the two roles then come from
    `peagle-sm local status`. ``now`` must be timezone-aware; only the lifetime schedule uses it, and None
    leaves that request out.

    ``stack`` is the name of the plan's CloudFormation stack, None for a deploy by boto3. For a stack, account
    and roles may be placeholders such as "${ExecutionRoleArn}", which the payloads contain unchanged.

    ``assumed`` has a sentence for each of account and region that is a placeholder or a default.
    ``prices`` has what AWS's price list says about hosting, by instance type.
    """

    account: str
    region: str
    now: datetime | None = None
    image_uris: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    local: bool = False
    role_arn: str | None = None
    scheduler_role_arn: str | None = None
    stack: str | None = None
    assumed: tuple[str, ...] = ()
    prices: Mapping[str, ListedPrice] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadSize:
    """GB of a draft head's weights, 0 if unknown.

    ``how`` is empty for a size from the catalogue or the files; else it says that the size is an upper
    estimate, or unknown.
    """

    gb: float = 0.0
    how: str = ""


@dataclass(frozen=True)
class Draft:
    """A spec with all defaults resolved; missing facts are None, with a finding in ``missing_facts``."""

    spec: EndpointSpec
    context: Context
    catalog: Catalog
    region: str
    source: Source
    model: ModelEntry
    jumpstart: JumpStartEntry | None
    head_id: str | None
    head: HeadEntry | None
    head_size: HeadSize
    num_speculative_tokens: int | None
    instance_types: tuple[str, ...]
    image: ImageFacts | None
    model_uri: str | None
    head_uri: str | None
    channel: str
    max_model_len: int | None
    role_arn: str | None
    scheduler_role_arn: str | None
    missing_facts: tuple[Finding, ...]
    lock: Lock | None = None

    @property
    def mode(self) -> Mode:
        """Speculation mode."""
        return self.spec.speculation.mode

    @property
    def speculating(self) -> bool:
        """True if draft tokens are proposed."""
        return self.mode_facts.speculates

    @property
    def mode_facts(self) -> ModeFacts:
        """The mode's row of the table of modes."""
        return facts_of(self.mode)

    @property
    def drafts_inside_target(self) -> bool:
        """True if the drafter's weights are inside the target's files."""
        return self.mode_facts.drafter == "head or target" and self.head_id is None and self.head_uri is None

    @property
    def scales_to_zero(self) -> bool:
        """True if the model is an inference component that may scale to zero."""
        return self.spec.lifecycle.idle == "scale-to-zero"

    @property
    def head_beside_target(self) -> str | None:
        """Head's folder below the target's prefix; None if it is elsewhere.

        Such a model needs no separate channel for the head.
        """
        if self.head_uri is None or self.model_uri is None or self.head_uri == self.model_uri:
            return None
        below = self.head_uri.startswith(self.model_uri)
        return self.head_uri.removeprefix(self.model_uri).rstrip("/") if below else None

    @property
    def needed_vocabulary(self) -> Vocabulary | None:
        """File that an isolated container needs for chat; None if it needs none.

        JumpStart's files include it, and newer images contain it.
        """
        known = self.image is not None and self.image.version is not None
        return self.possible_vocabulary if known else None

    @property
    def possible_vocabulary(self) -> Vocabulary | None:
        """Same as `needed_vocabulary`, but also for images of unknown version."""
        if self.source != "container" or not self.spec.security.network_isolation or self.image is None:
            return None
        embedded = self.image.at_least(self.catalog.engines.vocabulary_embedded.version)
        return None if embedded else self.model.vocabulary

    @property
    def image_published_by_aws(self) -> bool:
        """True when AWS publishes the image; its registries cannot always be described."""
        return self.image is not None and self.catalog.published_by_aws(self.image.uri)

    @property
    def has_own_image(self) -> bool:
        """True for an image of this project's container/, which has the gate and the plugins."""
        return self.source == "container" and not self.image_published_by_aws

    def with_prices(self, prices: Mapping[str, ListedPrice]) -> Draft:
        """Return this draft with what AWS's price list says, by instance type."""
        return replace(self, context=replace(self.context, prices=prices))

    def listed_price(self, name: str) -> ListedPrice:
        """Return what AWS's price list says about an instance type."""
        return self.context.prices.get(name, NOT_ASKED)

    def price(self, name: str) -> PriceEntry | None:
        """Return the hosting price of one instance that counts; None if none is known."""
        spec_price = self.spec.lifecycle.usd_per_hour
        table = self.catalog.price(name, self.region)
        return choose_price(name, self.region, table, self.listed_price(name), spec_price)

    @property
    def pipeline_stages(self) -> int:
        """Pipeline stages of a replica; 1 if the given number cannot be read."""
        return self._size("pipeline_parallel_size")

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica of the engine needs."""
        context = self._size("prefill_context_parallel_size")
        return self.spec.serving.tensor_parallel_size * self.pipeline_stages * context

    def _size(self, name: str) -> int:
        _, value = self.argument(name) or ("", 1)
        text = str(value)
        return int(text) if text.isdigit() and int(text) > 0 else 1

    def argument(self, name: str) -> tuple[str, Any] | None:
        """Return the field and the value of an engine argument in the spec; None if the spec lacks it."""
        serving, variable = self.spec.serving, f"SM_VLLM_{name.upper()}"
        if name in serving.extra_args:
            return f"serving.extra_args.{name}", serving.extra_args[name]
        return (f"serving.env.{variable}", serving.env[variable]) if variable in serving.env else None

    def instance(self, name: str) -> InstanceEntry | None:
        """Return the catalogue's entry of an instance type."""
        return self.catalog.instances.get(name)


class _Resolver:
    """Collects the missing facts while choosing; each method chooses one thing."""

    def __init__(self, spec: EndpointSpec, context: Context, catalog: Catalog) -> None:
        self.spec, self.context, self.catalog = spec, context, catalog
        self.missing_facts: list[Finding] = []
        # the local server has one region and roles of its own; checks/placement.py says what they replace
        self.region = context.region if context.local else spec.placement.region or context.region
        self.model = catalog.model(spec.model_name)
        self.source: Source = spec.source or self.model.sources[0]
        if self.source == "container":
            self._name_unknown_sizes()
        self.lock = self._usable_lock() if self.source == "jumpstart" else None
        self.jumpstart: JumpStartEntry | None = None
        if self.source == "jumpstart":
            self.jumpstart = _entry_of(self.lock) if self.lock else catalog.jumpstart.get(spec.model_name)
        if self.source not in self.model.sources:
            self._miss(
                f"source: found {self.source!r} for model {spec.model_name!r}; "
                f"allowed: {', '.join(self.model.sources)}",
                f"Set source: {self.model.sources[0]}.",
            )
        elif self.source == "jumpstart" and self.jumpstart is None:
            model_id = self.model.jumpstart_model_id or "not known"
            has_head = facts_of(spec.speculation.mode).has_weights
            uris = ", model_uri and head_uri" if has_head else " and model_uri"
            self._miss(
                f"JumpStart's spec of {spec.model_name!r} (id {model_id}) is neither in the catalogue nor "
                "locked: its image, artifact keys and environment are missing",
                f"{_LOCK} Or set source: container{uris}.",
            )

    def _name_unknown_sizes(self) -> None:
        """Report the facts that are missing for the spec's own model."""
        own_model, model = self.spec.own_model, self.model
        if own_model is None or model.weights_gb is not None:
            return
        if own_model.config is None:
            self._miss(
                f"model.config: found nothing; the sizes of {own_model.name} are read from its config.json",
                "Set model.config to its folder, s3://… or OWNER/NAME on the hub.",
            )
        elif model.config_place is None:
            self._miss(
                f"model.config: {own_model.config} was not read: this plan makes no call to AWS or the hub",
                "Download its config.json and model.safetensors.index.json into a folder beside the spec, "
                "and give the folder as model.config.",
            )
        else:
            self._miss(
                f"model.weights_gb: found nothing, and neither weights nor their index are beside "
                f"{model.config_place}",
                "Set model.weights_gb to the size of the *.safetensors in GB (10^9 bytes); or put "
                "model.safetensors.index.json beside config.json.",
            )

    def _usable_lock(self) -> Lock | None:
        place: Place = "local" if self.context.local else "aws"
        lock = self.spec.lock(place)
        if lock is None:
            return None
        reasons = mismatches(
            lock,
            model=self.spec.model_name,
            instance_types=tuple(self.spec.placement.instance_types),
            region=self.region,
            place=place,
        )
        if self.model.own and lock.jumpstart.model_id != self.model.jumpstart_model_id:
            reasons.append(
                f"it is of JumpStart's {lock.jumpstart.model_id}, but the spec has model.jumpstart: "
                f"{self.model.jumpstart_model_id}"
            )
        if reasons:
            self._miss(f"the lock next to the spec does not match: {'; '.join(reasons)}", _LOCK)
        return lock

    def _miss(self, message: str, next_step: str) -> None:
        self.missing_facts.append(Finding("error", message, next_step))

    def head(self) -> tuple[str | None, HeadEntry | None]:
        spec, mode = self.spec, self.spec.speculation.mode
        facts = facts_of(mode)
        if not facts.has_weights:
            return None, None
        head_id = spec.speculation.draft_head or self.model.default_heads.get(mode)
        ships = self.jumpstart is not None and self.jumpstart.draft(self.region) is not None
        if mode == "p-eagle" and ships and head_id in (None, JUMPSTART_HEAD):
            return JUMPSTART_HEAD, None
        if mode == "p-eagle" and self.jumpstart is not None and not ships and spec.head_uri is None:
            self._miss(
                f"config {self.jumpstart.config_name} of {self.jumpstart.jumpstart_model_id} has no head",
                "Set head_uri to the S3 prefix of a head, or choose another config: "
                "`peagle-sm lock --config NAME SPEC`.",
            )
            return None, None
        if head_id is None and self.model.own and not facts.needs_head:
            return None, None  # the weights are inside the target, which a check names
        if head_id is None:
            of_mode = sorted(
                n for n, h in self.catalog.heads_for(spec.model_name).items() if h.method == mode
            )
            known_heads = (
                f"known for {spec.model_name}: {', '.join(of_mode)}"
                if of_mode
                else "none is in the catalogue"
            )
            needed = (
                f"mode {mode} needs an explicit draft head ({known_heads})"
                if mode != "p-eagle"
                else f"no {mode} head is known for model {spec.model_name!r} ({known_heads})"
            )
            # JumpStart's own P-EAGLE head comes with its spec, which is reported as missing already
            if self.source != "jumpstart" or self.jumpstart is not None or mode != "p-eagle":
                self._miss(
                    f"speculation.draft_head: found nothing; {needed}",
                    "Set speculation.draft_head"
                    + (
                        "."
                        if of_mode
                        else " to the S3 prefix of its files, or to its name with that prefix as head_uri."
                    ),
                )
            return None, None
        entry = self.catalog.heads.get(head_id)
        if entry is None and spec.head_uri is None:
            allowed = sorted(self.catalog.heads_for(spec.model_name))
            self._miss(
                f"speculation.draft_head: found {head_id!r}; "
                f"allowed: {', '.join(allowed) or 'no catalogued head'}, or any name together with head_uri."
                f"{suggest(head_id, allowed)}",
                "Give a catalogued head, or the S3 prefix of your own head; `peagle-sm heads stage HEAD --to "
                "s3://…` uploads a folder or a head of the hub.",
            )
        return head_id, entry

    def head_size(self, head: HeadEntry | None) -> HeadSize:
        mode, facts = self.spec.speculation.mode, self.spec.own_facts
        has_files = facts_of(mode).needs_head or head is not None or self.spec.head_uri is not None
        if not facts_of(mode).has_weights or not has_files:
            return HeadSize()
        if facts is not None and facts.head_bytes is not None:
            return HeadSize(facts.head_bytes / 1e9)
        if head is not None and head.weights_gb is not None:
            return HeadSize(head.weights_gb)
        if mode in self.model.most_head_gb:
            return HeadSize(self.model.most_head_gb[mode], "upper estimate, its files were not read")
        known_heads = self.catalog.heads_for(self.spec.model_name).values()
        largest = max((known_head.weights_gb or 0.0 for known_head in known_heads), default=0.0)
        if mode == "draft-model":  # a whole model, of which a head's size says nothing
            largest = 0.0
        if largest:
            return HeadSize(largest, f"size unknown, counted as the largest known of {self.spec.model_name}")
        return HeadSize(0.0, "size unknown, counted as 0")

    def instance_types(self, head_gb: float) -> tuple[str, ...]:
        """Return the spec's instance types, else the default; this may set the tensor parallel size."""
        if self.spec.placement.instance_types:
            return tuple(self.spec.placement.instance_types)
        if self.jumpstart is not None:
            return (self.jumpstart.default_instance_type,)
        return self.model.default_instance_types or (self._smallest_instance(head_gb),)

    def _smallest_instance(self, head_gb: float) -> str:
        """Return the instance with the least GPU memory on which the model fits; else that with the most.

        If the spec has no tensor parallel size, the one with which it fits there becomes the spec's.
        """
        size_given = "tensor_parallel_size" in self.spec.serving.model_fields_set
        sizes = (self.spec.serving.tensor_parallel_size,) if size_given else self._even_sizes()
        instances = self.catalog.instances
        fitting = [(name, gpus) for name in instances for gpus in sizes if self._fits(name, gpus, head_gb)]

        def order(choice: tuple[str, int]) -> tuple[float, bool, int, int, str]:
            name, gpus = choice
            entry, size = instances[name], name.rpartition(".")[2]
            rank = _SIZES.index(size) if size in _SIZES else len(_SIZES)
            unpriced = self.catalog.price(name, self.region) is None
            return entry.gpu_count * entry.gpu_memory_gb, unpriced, gpus, rank, name

        if not fitting:
            enough = [name for name in instances if instances[name].gpu_count >= sizes[0]]
            return max(enough or instances, key=lambda name: instances[name].gpu_memory_gb)
        name, gpus = min(fitting, key=order)
        serving = self.spec.serving.model_copy(update={"tensor_parallel_size": gpus})
        self.spec = self.spec.model_copy(update={"serving": serving})
        return name

    def _even_sizes(self) -> tuple[int, ...]:
        """Return the tensor parallel sizes over which vLLM can split the model's heads; at least 1."""
        queries = self.model.attention_heads or 1
        groups = [group.kv_heads for group in self.model.attention or ()]
        return tuple(
            gpus
            for gpus in _REPLICA_GPUS
            if queries % gpus == 0 and all(heads % gpus == 0 or gpus % heads == 0 for heads in groups)
        )

    def _fits(self, name: str, gpus: int, head_gb: float) -> bool:
        serving, model, entry = self.spec.serving, self.model, self.catalog.instances[name]
        tokens = serving.max_model_len or model.default_max_model_len or 0
        cache = kv_cache_gb(model.attention or (), tokens, serving.kv_cache_dtype, gpus)
        enough = entry.gpu_count >= gpus * serving.data_parallel_size
        room = gpus * (entry.gpu_memory_gb * GPU_SHARE - GPU_OVERHEAD_GB)
        return enough and room >= (model.weights_gb or 0.0) + head_gb + cache

    def _registry(self) -> str | None:
        entry = self.catalog.regions.get(self.region)
        if entry is None:
            self._miss(
                f"placement.region: no image registry is known for region {self.region!r}."
                f"{suggest(self.region, self.catalog.regions)}",
                "Choose another region, or set image.",
            )
            return None
        return entry.registry(self.region)

    def image(self, first_type: str) -> ImageFacts | None:
        uri = self.spec.image
        if uri is not None:
            uri = self._local_engine(uri)
        elif self.jumpstart is not None:
            uri = self.jumpstart.image_for(first_type)
            if "{registry}" in uri:
                registry = self._registry()
                uri = uri.format(registry=registry) if registry else None
        elif self.source == "container":
            uri = self._container_image()
        return self.catalog.images.describe(uri) if uri else None

    def _local_engine(self, image: str) -> str | None:
        """Return the URI of an engine that is named as ``vllm-cpu:0.30.0``; any other image as it is."""
        if not self.context.local or image.partition(":")[0] != "vllm-cpu":
            return image
        engines = {name: uri for name, uri in self.context.image_uris.items() if name.startswith("vllm-cpu")}
        if image not in engines:
            self._miss(
                f"image: found {image}; engines of the local SageMaker: {', '.join(engines)}",
                "Choose one of these engines.",
            )
        return engines.get(image)

    def _container_image(self) -> str | None:
        if self.model.image in self.context.image_uris:
            return self.context.image_uris[self.model.image]
        if self.model.image == "vllm":
            registry = self._registry()
            return f"{registry}/vllm:{self.catalog.images.default_tag()}" if registry else None
        self._miss(
            f"image: model {self.spec.model_name!r} needs this project's {self.model.image} image, whose "
            "URI in your account is not known",
            "Build container/, push it to ECR and set image; or deploy with --local.",
        )
        return None

    def model_uri(self) -> str | None:
        if self.spec.model_uri:
            return self.spec.model_uri
        if self.jumpstart is not None:
            return self.jumpstart.target(self.region)
        if self.model.artifact in self.context.artifacts:
            return _prefix(self.context.artifacts[str(self.model.artifact)])
        if self.source == "container":
            unnamed = "the model's folder" if self.model.own else "the shipped stand-in target"
            files = self.model.hub_id or unnamed
            self._miss(
                "model_uri: found nothing; source container needs the S3 prefix of the target's files",
                self._staging(files, "model_uri"),
            )
        return None

    def _staging(self, files: str, field: str) -> str:
        """Return how to get the files into S3: one command for a model of the catalogue with its own head."""
        by_hand = f"Copy {files} to your bucket and set {field}: s3://<bucket>/<prefix>/."
        speculation = self.spec.speculation
        own_heads = (None, self.model.default_heads.get("p-eagle"))
        other_head = speculation.mode not in ("none", "p-eagle") or speculation.draft_head not in own_heads
        if self.model.own or not self.model.hub_id or other_head:
            return by_hand
        stage = f"peagle-sm heads stage {self.spec.model_name} --to s3://<bucket>/<prefix>/ --write <spec>"
        return f"Run `{stage}`: it copies the model and its head. {by_hand.replace('Copy', 'Or copy', 1)}"

    def head_uri(self, head_id: str | None, head: HeadEntry | None) -> str | None:
        if not facts_of(self.spec.speculation.mode).has_weights:
            return None
        if self.spec.head_uri:
            return self.spec.head_uri
        if self.source == "jumpstart" and self.jumpstart is None:
            return None  # JumpStart's whole spec is reported as missing
        own = self.jumpstart.draft(self.region) if self.jumpstart else None
        if own is not None and head_id in (JUMPSTART_HEAD, self.model.default_heads.get("p-eagle")):
            return own
        if head is not None and head.artifact in self.context.artifacts:
            return _prefix(self.context.artifacts[str(head.artifact)])
        if head_id is not None and head is not None:
            wanted = head.hub_id or f"the shipped head {head_id}"
            self._miss(
                f"head_uri: found nothing; the weights of head {head_id!r} are missing: it needs the S3 "
                "prefix of its files",
                self._staging(wanted, "head_uri"),
            )
        return None

    def role(self, field: str, given: str | None, from_context: str | None, purpose: str) -> str | None:
        role = from_context or given if self.context.local else given or from_context
        if role is None:
            self._miss(
                f"{field}: found nothing; {purpose}",
                f"Set {field}: arn:aws:iam::{self.context.account}:role/<name>.",
            )
        return role


def _prefix(uri: str) -> str:
    return uri if uri.endswith("/") else uri + "/"


def _jumpstarts_tokens(entry: JumpStartEntry | None) -> int | None:
    """Return the number of draft tokens in JumpStart's settings, if any."""
    try:
        tokens = json.loads(entry.speculative_config).get("num_speculative_tokens") if entry else None
    except (ValueError, AttributeError):  # none, or not what vLLM would take; a check says so
        return None
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _max_model_len(entry: JumpStartEntry | None, model: ModelEntry) -> int | None:
    text = entry.environment.get("SM_VLLM_MAX_MODEL_LEN", "") if entry else ""
    return int(text) if text.isdigit() else model.default_max_model_len


def resolve(spec: EndpointSpec, context: Context, catalog: Catalog) -> Draft:
    """Resolve all defaults of a spec.

    Raises:
        SpecError: the model is not in the catalogue.
    """
    catalog = catalog_for(spec, catalog)
    chosen = _Resolver(spec, context, catalog)
    head_id, head = chosen.head()
    head_size = chosen.head_size(head)
    types = chosen.instance_types(head_size.gb)
    spec = chosen.spec
    tokens = spec.speculation.num_speculative_tokens
    mode = spec.speculation.mode
    if not facts_of(mode).speculates:
        tokens = None
    elif tokens is None:
        own = _jumpstarts_tokens(chosen.jumpstart) if mode == "p-eagle" else None
        tokens = own or chosen.model.default_num_speculative_tokens.get(mode, facts_of(mode).draft_tokens)
    return Draft(
        spec=spec,
        context=context,
        catalog=catalog,
        region=chosen.region,
        source=chosen.source,
        model=chosen.model,
        jumpstart=chosen.jumpstart,
        head_id=head_id,
        head=head,
        head_size=head_size,
        num_speculative_tokens=tokens,
        instance_types=types,
        image=chosen.image(types[0]),
        model_uri=chosen.model_uri(),
        head_uri=chosen.head_uri(head_id, head),
        channel=(chosen.jumpstart and chosen.jumpstart.draft_channel) or CONTAINER_CHANNEL,
        max_model_len=spec.serving.max_model_len or _max_model_len(chosen.jumpstart, chosen.model),
        role_arn=chosen.role(
            "execution_role_arn",
            spec.execution_role_arn,
            context.role_arn,
            "the containers need a role that may read the artifacts and the image",
        ),
        scheduler_role_arn=chosen.role(
            "scheduler_role_arn",
            spec.scheduler_role_arn,
            context.scheduler_role_arn,
            "the lifetime schedule needs a role that may call sagemaker:DeleteEndpoint",
        ),
        missing_facts=tuple(chosen.missing_facts),
        lock=chosen.lock,
    )


def _entry_of(lock: Lock) -> JumpStartEntry:
    """Convert a lock to a catalogue entry; its first instance type has the files."""
    first = next(iter(lock.instances.values()))
    environment = dict(lock.environment)
    speculative = environment.pop(SPECULATIVE_CONFIG, "")
    return JumpStartEntry(
        jumpstart_model_id=lock.jumpstart.model_id,
        version=lock.jumpstart.version,
        config_name=lock.jumpstart.config,
        source=f"s3://{lock.source.bucket}/{lock.source.spec_key}, sha256 {lock.source.sha256[:12]}",
        date=lock.written_at[:10],
        gated=lock.licence.gated,
        image=first.image,
        family_images={name: instance.image for name, instance in lock.instances.items()},
        target_key="",
        draft_key="",
        target_uri=first.target_uri,
        draft_uri=lock.head.uri if lock.head else None,
        draft_channel=lock.head.channel if lock.head else "",
        default_instance_type=lock.default_instance_type or next(iter(lock.instances)),
        instance_types=lock.supported_instance_types,
        network_isolation=lock.network_isolation,
        download_timeout_s=lock.download_timeout_s or _LONGEST_WAIT_S,
        startup_timeout_s=lock.startup_timeout_s or _LONGEST_WAIT_S,
        environment=environment,
        speculative_config=speculative,
        instance_environment={name: dict(instance.environment) for name, instance in lock.instances.items()},
        locked=True,
        deprecated=lock.jumpstart.deprecated,
        vulnerabilities=lock.jumpstart.vulnerabilities
        or (("not named",) if lock.jumpstart.vulnerable else ()),
        messages=lock.jumpstart.messages,
    )
