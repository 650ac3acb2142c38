"""The handler of every type whose verbs are API calls alone; `rows` has a row for each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import (
    Created,
    Properties,
    ResourceContext,
    ResourceFailure,
    generated_name,
)
from sagemaker_local.cloudformation.resources.calls import (
    check_passed,
    gone_is_fine,
    merged_tags,
    refuse_others,
    send,
    tag_list,
)

Members = Mapping[str, Any]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Setting:
    """One property that an operation of its own sets.

    Attributes:
        put: the operation; ``more`` are further members of it.
        member: its member with the value; empty: the value is an object of members.
        remove: operation for a template without the property; None: ``put`` sends ``default``.
        read: the API's form of the template's value.
        off: a value that means the same as no property.
        created: True if the creation sets it too.
    """

    property: str
    put: str
    member: str = ""
    remove: str | None = None
    default: Any = None
    read: Callable[[Any], Any] = _same
    more: Members | None = None
    off: tuple[Any, ...] = ()
    created: bool = False

    def apply(
        self, ctx: ResourceContext, service: str, address: Members, old: Properties, new: Properties
    ) -> None:
        """Send the call if the value has changed."""
        before, after = (self._value(properties) for properties in (old, new))
        if before == after:
            return
        if after is None and self.remove is not None:
            send(ctx, service, self.remove, address, only_known=True)
        else:
            value = self.default if after is None else self.read(after)
            members = {self.member: value} if self.member else value or {}
            send(ctx, service, self.put, {**address, **(self.more or {}), **members}, only_known=True)

    def _value(self, properties: Properties) -> Any:
        value = properties.get(self.property)
        return None if value in self.off else value


@dataclass(frozen=True)
class Items:
    """A property with a list of things that are each attached by a call, such as a role's policies."""

    property: str
    put: str
    remove: str
    attached: Callable[[Any], Members]
    detached: Callable[[Any], Members]
    created = False

    def apply(
        self, ctx: ResourceContext, service: str, address: Members, old: Properties, new: Properties
    ) -> None:
        """Detach what the template no longer has, and attach what is new or changed."""
        before, after = old.get(self.property, []), new.get(self.property, [])
        kept = [self.detached(item) for item in after]
        for item in before:
            if self.detached(item) not in kept:
                with gone_is_fine("NoSuchEntity"):
                    send(ctx, service, self.remove, {**address, **self.detached(item)})
        for item in after:
            if item not in before:
                send(ctx, service, self.put, {**address, **self.attached(item)})


@dataclass(frozen=True)
class Tagging:
    """The calls that change tags, and their members.

    Attributes:
        of: members that name the resource, from its Ref; None: its address.
        created: the member of the creation; None: the creation takes no tags, so ``tag`` follows it.
        form: the API's form of the tags.
        keys: the member of ``untag``; None: ``untag`` removes every tag.
        changes: False if moto cannot change them.
    """

    of: Callable[[ResourceContext, str], Members] | None = None
    created: str | None = "Tags"
    tag: str = "TagResource"
    untag: str = "UntagResource"
    keys: str | None = "TagKeys"
    tags: str = "Tags"
    form: Callable[[Mapping[str, str]], Any] = tag_list
    changes: bool = True

    def change(
        self, ctx: ResourceContext, row: Row, ref: str, address: Members, old: Members, new: Properties
    ) -> None:
        """Set a resource's tags to the stack's and the template's; ``old`` are the tags that it has."""
        resource = dict(address if self.of is None else self.of(ctx, ref))
        wanted = merged_tags(ctx, new)
        dropped = sorted(old.keys() - wanted.keys())
        if dropped and (self.keys is not None or not wanted):
            keys = {self.keys: dropped} if self.keys else {}
            send(ctx, row.service, self.untag, resource | keys, only_known=True)
        if wanted:
            send(ctx, row.service, self.tag, {**resource, self.tags: self.form(wanted)}, only_known=True)


@dataclass(frozen=True)
class Row:
    """One type.

    Attributes:
        service: name of the boto3 client.
        create: operation that creates it, with its properties, its name and its tags.
        delete: operation that deletes it by its address; ``gone`` are the codes of one that does not exist.
        name: member and property with the name; empty: it has no name.
        longest: length of a generated name; ``lower``: in small letters; ``prefix``: what it begins with.
        update: operation that changes it in place, with those properties that it takes, and with
            ``defaults`` for those that the template no longer has; None: nothing changes by it.
        takes: properties of the creation; None: all of AWS's schema. Others that no setting has are refused.
        fixed: properties whose change AWS takes, and this CloudFormation does not.
        members: the API's name of a property, where the template has another.
        request: the creation's form of the properties.
        settings: properties with calls of their own.
        ref: the Ref, from the name, the answer of the creation and the properties.
        address: members that name it in later calls, from its Ref and its properties.
        attributes: values for Fn::GetAtt, from the context, the Ref and the properties.
        exists: whether a name is taken, where the API would take it and CloudFormation refuses it.
        role: the role that is passed to ``passed_to``, a service.
        tagging: None: it has no tags.
    """

    service: str
    create: str
    delete: str
    name: str = ""
    gone: tuple[str, ...] = ("ResourceNotFoundException",)
    longest: int = 0
    lower: bool = False
    prefix: str = ""
    update: str | None = None
    defaults: Members | None = None
    takes: frozenset[str] | None = None
    fixed: tuple[str, ...] = ()
    members: Mapping[str, str] | None = None
    request: Callable[[Properties], Members] = dict
    settings: tuple[Setting | Items, ...] = ()
    ref: Callable[[str, Members, Properties], str] = lambda name, answer, properties: name
    address: Callable[[str, Properties], Members] | None = None
    attributes: Callable[[ResourceContext, str, Properties], Members] = lambda ctx, ref, properties: {}
    exists: Callable[[ResourceContext, str], bool] | None = None
    role: Callable[[Properties], str | None] = lambda properties: None
    passed_to: str = ""
    tagging: Tagging | None = None


class ByTable:
    """The handler of a type with a row."""

    def __init__(self, type_name: str, row: Row) -> None:
        self._type_name = type_name
        self._row = row

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Create it; if one of its settings is refused, delete it again."""
        row = self._row
        self._check(ctx, properties)
        name = properties.get(row.name) if row.name else ""
        name = str(name or row.prefix + generated_name(ctx, logical_id, row.longest or 128, lower=row.lower))
        if row.exists is not None and row.exists(ctx, name):
            raise ResourceFailure(f"{name} already exists")
        request = self._request(properties) | ({self._api_name: name} if row.name else {})
        tagging = row.tagging
        if tagging is not None and tagging.created is not None:
            tags = merged_tags(ctx, properties)
            request[tagging.created] = tagging.form(tags) if tags else None
        ref = row.ref(name, send(ctx, row.service, row.create, request), properties)
        address = self._address(ref, properties)
        try:
            for setting in row.settings:
                if not setting.created:
                    setting.apply(ctx, row.service, address, {}, properties)
            if tagging is not None and tagging.created is None:
                tagging.change(ctx, row, ref, address, {}, properties)
        except Exception:
            with suppress(ClientError):
                self.delete(ctx, ref, properties)
            raise
        return Created(ref, dict(row.attributes(ctx, ref, properties)))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Change it in place."""
        row = self._row
        self._check(ctx, new)
        changed = [key for key in row.fixed if old.get(key) != new.get(key)]
        if changed:
            raise ResourceFailure(
                f"the local CloudFormation does not change {', '.join(changed)} of {self._type_name}"
            )
        address = self._address(physical_id, new)
        if row.update is not None:
            request = {**(row.defaults or {}), **self._request(new), **address}
            send(ctx, row.service, row.update, request, only_known=True)
        for setting in row.settings:
            setting.apply(ctx, row.service, address, old, new)
        if row.tagging is not None and row.tagging.changes:
            row.tagging.change(ctx, row, physical_id, address, merged_tags(ctx, old), new)
        return Created(physical_id, dict(row.attributes(ctx, physical_id, new)))

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Delete it, after what is attached to it."""
        row = self._row
        address = self._address(physical_id, properties)
        for setting in row.settings:
            if isinstance(setting, Items):
                setting.apply(ctx, row.service, address, properties, {})
        with gone_is_fine(*row.gone):
            send(ctx, row.service, row.delete, address, only_known=True)

    @property
    def _api_name(self) -> str:
        return (self._row.members or {}).get(self._row.name, self._row.name)

    def _check(self, ctx: ResourceContext, properties: Properties) -> None:
        row = self._row
        if row.takes is not None:
            known = {*row.takes, *(setting.property for setting in row.settings), row.name, "Tags"} - {""}
            refuse_others(properties, known, self._type_name)
        role = row.role(properties)
        if role is not None:
            check_passed(ctx, role, row.passed_to)

    def _address(self, ref: str, properties: Properties) -> Members:
        row = self._row
        return {self._api_name: ref} if row.address is None else row.address(ref, properties)

    def _request(self, properties: Properties) -> dict[str, Any]:
        row = self._row
        later = {setting.property for setting in row.settings if not setting.created} | {"Tags"}
        members = row.members or {}
        return {
            members.get(key, key): value for key, value in row.request(properties).items() if key not in later
        }


@dataclass(frozen=True)
class OnEach:
    """The handler of a document that is put on several holders, such as one policy on two topics.

    ``holders`` is the property with the list; ``put`` and ``remove`` give operation and members of a holder.
    """

    service: str
    holders: str
    put: Callable[[str, Properties], tuple[str, Members]]
    remove: Callable[[str, Properties], tuple[str, Members]]
    takes: frozenset[str]
    gone: tuple[str, ...]

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Put the document on each holder."""
        self._put(ctx, properties)
        return Created(generated_name(ctx, logical_id, 64))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Put the new document, and remove the old one from holders that no longer have it."""
        self._put(ctx, new)
        renamed = old.get("PolicyName") != new.get("PolicyName")
        left = [holder for holder in old[self.holders] if renamed or holder not in new[self.holders]]
        self.delete(ctx, physical_id, {**old, self.holders: left})
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Remove the document from each holder."""
        for holder in properties.get(self.holders, []):
            with gone_is_fine(*self.gone):
                send(ctx, self.service, *self.remove(holder, properties))

    def _put(self, ctx: ResourceContext, properties: Properties) -> None:
        refuse_others(properties, self.takes | {self.holders}, "a policy")
        if not properties.get(self.holders):
            raise ResourceFailure(f"{self.holders}: found none; at least one is required")
        for holder in properties[self.holders]:
            send(ctx, self.service, *self.put(holder, properties))


class Metadata:
    """The CDK's usage metadata: a resource that is only an id."""

    def create(self, ctx: ResourceContext, logical_id: str, properties: Properties) -> Created:
        """Return an id."""
        return Created(generated_name(ctx, logical_id, 128))

    def update(self, ctx: ResourceContext, physical_id: str, old: Properties, new: Properties) -> Created:
        """Keep the id."""
        return Created(physical_id)

    def delete(self, ctx: ResourceContext, physical_id: str, properties: Properties) -> None:
        """Do nothing."""
