"""A control plane with scripted engines, and the few calls that every test makes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError, ControlPlane, Event, Timing
from tests.local.scripted_engine import ScriptedLauncher

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
ROLE = "arn:aws:iam::123456789012:role/SageMakerExecution"
PREFIX = "arn:aws:sagemaker:us-east-1:123456789012"
FAST = Timing(
    poll_s=0.02,
    watch_s=0.02,
    ping_s=0.05,
    unhealthy_after_s=0.3,
    unhealthy_pings=3,
    fast_ping_s=60,
    rolling_back_s=0.05,
    deleting_s=0.05,
    drain_s=5,
)


def specification(model: str = "m", gpus: float = 1) -> dict[str, Any]:
    """An inference component's, by model."""
    needs = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": gpus}
    return {"ModelName": model, "ComputeResourceRequirements": needs}


class Account:
    """The plane under test and shorthand for what it is asked."""

    def __init__(self, plane: ControlPlane, launcher: ScriptedLauncher, clock: LocalClock) -> None:
        self.plane = plane
        self.launcher = launcher
        self.clock = clock
        self.events: list[Event] = []

    async def call(self, operation: str, **body: Any) -> dict[str, Any]:
        return await self.plane.handle(operation, body)

    async def refused(self, message: str, operation: str, **body: Any) -> None:
        """The call answers ValidationException with exactly this message."""
        with pytest.raises(ApiError) as refusal:
            await self.plane.handle(operation, body)
        assert (refusal.value.code, refusal.value.message) == ("ValidationException", message)

    async def model(self, name: str = "m", **environment: str) -> dict[str, Any]:
        return await self.call(
            "CreateModel",
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )

    async def config(self, name: str = "c", *models: str, **variant: Any) -> dict[str, Any]:
        variants = [
            {
                "VariantName": "AllTraffic" if i == 0 else f"Variant{i}",
                "ModelName": model,
                "InstanceType": "ml.g7e.2xlarge",
                "InitialInstanceCount": 1,
                **variant,
            }
            for i, model in enumerate(models or ("m",))
        ]
        return await self.call("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=variants)

    async def endpoint(self, name: str = "e", config: str = "c") -> dict[str, Any]:
        return await self.call("CreateEndpoint", EndpointName=name, EndpointConfigName=config)

    async def describe(self, name: str = "e") -> dict[str, Any]:
        return await self.call("DescribeEndpoint", EndpointName=name)

    async def serve(self, name: str = "e", config: str = "c", **environment: str) -> None:
        """From nothing to an endpoint InService."""
        await self.model("m", **environment)
        await self.config(config)
        await self.endpoint(name, config)
        await self.until("InService", name)

    async def component_config(self, name: str = "c", **variant: Any) -> dict[str, Any]:
        """A configuration whose variant hosts inference components: eight accelerators."""
        request = {"VariantName": "AllTraffic", "InstanceType": "ml.p5.48xlarge", "InitialInstanceCount": 1}
        return await self.call(
            "CreateEndpointConfig",
            EndpointConfigName=name,
            ExecutionRoleArn=ROLE,
            EnableNetworkIsolation=True,
            ProductionVariants=[request | variant],
        )

    async def host(self, name: str = "e", **variant: Any) -> None:
        """From nothing to an endpoint InService that waits for components, and a model `m`."""
        await self.model()
        await self.component_config(**variant)
        await self.endpoint(name)
        await self.until("InService", name)

    async def component(
        self, name: str = "ic", *, model: str = "m", endpoint: str = "e", copies: int = 1, gpus: float = 1
    ) -> dict[str, Any]:
        return await self.call(
            "CreateInferenceComponent",
            InferenceComponentName=name,
            EndpointName=endpoint,
            VariantName="AllTraffic",
            Specification=specification(model, gpus),
            RuntimeConfig={"CopyCount": copies},
        )

    async def describe_component(self, name: str = "ic") -> dict[str, Any]:
        return await self.call("DescribeInferenceComponent", InferenceComponentName=name)

    async def until_component(self, status: str, name: str = "ic") -> dict[str, Any]:
        async def reached() -> bool:
            return bool((await self.describe_component(name))["InferenceComponentStatus"] == status)

        await self.wait(reached, f"component status {status}")
        return await self.describe_component(name)

    async def until_gone(self, name: str = "ic") -> None:
        async def gone() -> bool:
            listed = await self.call("ListInferenceComponents", NameContains=name)
            return not listed["InferenceComponents"]

        await self.wait(gone, f"the end of {name}")

    async def status(self, name: str = "e") -> str:
        return str((await self.describe(name))["EndpointStatus"])

    async def tell(self, what: str, number: int = -1) -> None:
        """Tells an engine, by default the last, to be `ready`, be `sick` or `exit`; waits for its launch."""

        async def launched() -> bool:
            return len(self.launcher.processes) > max(number, 0)

        await self.wait(launched, "an engine to tell")
        await self.launcher.processes[number].tell(what)

    async def until(self, status: str, name: str = "e") -> dict[str, Any]:
        async def reached() -> bool:
            return await self.status(name) == status

        await self.wait(reached, f"status {status}")
        return await self.describe(name)

    async def wait(self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while not await condition():
            assert time.monotonic() < limit, f"{what} not reached: {self.plane.describe_engines()}"
            await asyncio.sleep(0.01)

    def component_statuses(self, name: str = "ic") -> list[str]:
        """Every status that the component went through, as the events told."""
        lines = [event for event in self.events if event.kind == "component-status"]
        return [event.status for event in lines if event.component == name]

    def statuses(self, name: str = "e") -> list[str]:
        """Every status that the endpoint went through, as the events told."""
        return [event.status for event in self.events if event.kind == "status" and event.endpoint == name]


MakeAccount = Callable[..., Account]


@pytest.fixture
async def make_account(tmp_path: Path) -> AsyncIterator[MakeAccount]:
    accounts: list[Account] = []

    def make(*, launcher: ScriptedLauncher | None = None, timing: Timing = FAST, **options: Any) -> Account:
        launcher = launcher or ScriptedLauncher()
        clock = LocalClock()
        account: Account

        def on_event(event: Event) -> None:
            account.events.append(event)

        plane = ControlPlane(
            clock=clock,
            launcher=launcher,
            account="123456789012",
            region="us-east-1",
            root=tmp_path,
            on_event=on_event,
            timing=timing,
            seed=1,
            **options,
        )
        account = Account(plane, launcher, clock)
        accounts.append(account)
        return account

    yield make
    for account in accounts:
        await account.plane.close()
        assert account.launcher.running == []


@pytest.fixture
def aws(make_account: MakeAccount) -> Account:
    return make_account()
