"""The picker's state and its one decision: from (service, body) to an engine or a refusal.

Everything happens on one event loop without awaiting, so no locks: the catalog changes, reports arrive,
requests are decided, one at a time.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from headrace_engine.contracts import LoadReport
from headrace_engine.contracts.resume_arguments import RESUME_IDS
from headrace_gateway.balancers.endpoint import Endpoint
from headrace_gateway.catalog import Catalog, ServiceKey, authority
from headrace_gateway.pick.fleet import NO_HEADERS, Fleet, NoEngineError, OverloadedError
from headrace_gateway.pick.placement import Placement
from headrace_gateway.pick.prefix_index import MOST_CHUNKS
from headrace_gateway.pick.rebalance import STEPPED_BACK, TERMINATING, Leaving, Surplus, surpluses
from headrace_gateway.pick.tokens import ARGUMENTS, BadRequestError, Prompt, read_prompt
from headrace_gateway.replies import STAY, Reply

PREFIX_CHUNKS = 524_288  # of all services together; some 300 bytes each


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a request goes: `host` is `ip:port`."""

    host: str
    balancer: str


@dataclass(slots=True)
class Picker:
    """All services' fleets; `clock` gives seconds that never go back.

    Other pickers choose, too: `share` tells them of a service and what was placed, `take_in` hears of theirs.
    """

    clock: Callable[[], float]
    random: Random
    share: Callable[[str, Placement], None] = lambda _service, _placement: None
    fleets: dict[str, Fleet] = field(default_factory=dict)  # by `namespace/name`
    owners: dict[str, str] = field(default_factory=dict)  # services, so named, by the names of their models
    catalog: Catalog = field(default_factory=Catalog)

    def set_catalog(self, catalog: Catalog) -> None:
        """Follow the catalog; fleets of services that stay keep what they know."""
        fleets: dict[str, Fleet] = {}
        share = PREFIX_CHUNKS // max(len(catalog.services), 1)
        for key, service in catalog.services.items():
            fleet = self.fleets.get(str(key)) or Fleet.from_config(service.config, self.random)
            fleet.configure(service.config)
            fleet.prefixes.most = min(share, MOST_CHUNKS)
            fleet.set_addresses(service.addresses)
            fleets[str(key)] = fleet
        self.fleets = fleets
        self.catalog = catalog
        self.owners = {model: str(key) for model, key in catalog.model_owners().items()}

    def observe(self, key: ServiceKey, address: str, report: LoadReport) -> None:
        """Take in the report of one engine."""
        fleet = self.fleets.get(str(key))
        if fleet is not None:
            fleet.observe(address, report, self.clock())

    def take_in(self, service: str, placement: Placement) -> None:
        """Take in what another picker placed."""
        fleet = self.fleets.get(service)
        if fleet is not None:
            fleet.take_in(placement, self.clock())

    def surpluses(self) -> dict[str, Surplus]:
        """Return by authority what engines shall hand over, to others of the same pod template."""
        found = dict.fromkeys(self.catalog.engines_to_leave(), TERMINATING)
        for key, service in self.catalog.services.items():
            if service.config.rebalance and service.config.resume:
                found |= self._surpluses_of(self.fleets[str(key)], service.revisions)
        return found

    def _surpluses_of(self, fleet: Fleet, revisions: Mapping[str, str]) -> dict[str, Surplus]:
        alike: dict[str, list[Endpoint]] = {}
        for endpoint in fleet.candidates(self.clock()):
            if revision := revisions.get(endpoint.address):
                alike.setdefault(revision, []).append(endpoint)
        found = {address: surplus for each in alike.values() for address, surplus in surpluses(each).items()}
        return {authority(address, fleet.config.port): surplus for address, surplus in found.items()}

    def decide(
        self,
        service: str,
        body: bytes,
        headers: Mapping[str, str] = NO_HEADERS,
        among: Collection[str] | None = None,
        *,
        lost_with: Collection[str] | None = None,
        leaving: Leaving | None = None,
    ) -> Choice | Reply | None:
        """Choose the engine for a request to `service` (`namespace/name`), or say why there is none.

        `among`: the hosts that it may go to, as `ip:port`; None for all. `lost_with`: hosts that were lost
        while they answered it; None where it comes from its client. One that was lost goes to another, and is
        not refused for a long queue, since its client may have a part of the answer. `leaving`: the engine
        that has it, where it may stay, or that handed it back; `STAY` says that it had better stay, or wait.

        `None` where Envoy shall balance. So for a service that is not known here, such as all of them in a
        picker that has just started. And for one without an engine that Kubernetes calls ready: Envoy knows
        of the others, finds out by itself which of them serve, and has the one answer where none does.
        """
        if service not in self.fleets:
            return None
        try:
            prompt = read_prompt(body)
        except BadRequestError as error:
            return invalid_body(error)
        return self.place(service, prompt, headers, among, lost_with=lost_with, leaving=leaving)

    def place(
        self,
        service: str,
        prompt: Prompt,
        headers: Mapping[str, str] = NO_HEADERS,
        among: Collection[str] | None = None,
        *,
        lost_with: Collection[str] | None = None,
        leaving: Leaving | None = None,
    ) -> Choice | Reply | None:
        """Choose the engine for a request whose body was read, as `decide` does."""
        fleet = self.fleets.get(service)
        if fleet is None:
            return None
        if self.owners.get(prompt.model, service) != service:
            return _another_services_model(prompt.model, service, fleet)
        if prompt.resumed and lost_with is None:
            return invalid_body(BadRequestError(f"`{ARGUMENTS}.{RESUME_IDS}` is not for clients", ARGUMENTS))
        if leaving is not None:
            return self._place_elsewhere(service, prompt, leaving, lost_with or ())
        allowed = _addresses(fleet, among, lost_with or ())
        try:
            placement = fleet.choose(prompt, self.clock(), headers, allowed, may_refuse=lost_with is None)
        except NoEngineError:
            return None
        except OverloadedError as error:
            return Reply(
                429,
                "overloaded",
                f"the service {service} is overloaded: {error}",
                retry_after=error.retry_after,
            )
        return self._send(service, placement)

    def _place_elsewhere(
        self, service: str, prompt: Prompt, leaving: Leaving, lost_with: Collection[str]
    ) -> Choice | Reply | None:
        """Choose an engine of the same pod template for a stream whose engine still has it, or gave it back.

        None where one that was given back finds no such engine: it goes on as if its engine were lost.
        """
        fleet, now = self.fleets[service], self.clock()
        revisions = self.catalog.services[ServiceKey(*service.split("/"))].revisions
        hosts = {authority(address, fleet.config.port): address for address in fleet.endpoints}
        own = hosts.get(leaving.host, "")
        revision = revisions.get(own)
        alike = [
            address
            for host, address in hosts.items()
            if host not in lost_with
            and (not own or address == own or (revision and revisions.get(address) == revision))
        ]
        try:
            if leaving.reason != STEPPED_BACK:
                placement = fleet.choose_other(prompt, now, alike, leaving=own, reason=leaving.reason)
            elif alike:
                placement = fleet.choose_with_room(prompt, now, alike)
            else:
                return None
        except NoEngineError:
            return STAY
        return self._send(service, placement)

    def _send(self, service: str, placement: Placement) -> Choice:
        """Tell the other pickers, and where the request goes."""
        self.share(service, placement)
        config = self.fleets[service].config
        return Choice(authority(placement.address, config.port), config.balancer)

    def place_unread(self, service: str, among: Collection[str] | None = None) -> Choice | None:
        """Choose the engine for what is no prompt; None if there is none."""
        fleet = self.fleets.get(service)
        if fleet is None:
            return None
        try:
            address = fleet.choose_unread(self.clock(), _addresses(fleet, among))
        except NoEngineError:
            return None
        return Choice(authority(address, fleet.config.port), fleet.config.balancer)


def _addresses(
    fleet: Fleet, hosts: Collection[str] | None, without: Collection[str] = ()
) -> Collection[str] | None:
    """Return the addresses of those engines that are among these hosts, and not among those; None for all."""
    if hosts is None and not without:
        return None
    found = {authority(address, fleet.config.port): address for address in fleet.endpoints}
    return {
        address for host, address in found.items() if (hosts is None or host in hosts) and host not in without
    }


def invalid_body(error: BadRequestError) -> Reply:
    """Tell the client what is wrong with its request."""
    return Reply(400, "invalid_body", str(error), error.param)


def _another_services_model(model: str, service: str, fleet: Fleet) -> Reply:
    """Refuse a request whose path or header names a service, and whose body a model that is not its own."""
    own = ", ".join(f"`{name}`" for name in fleet.config.models)
    text = f"`{model}` is a model of another service than {service}, which the request names: it has {own}"
    return Reply(404, "model_not_found", text, "model")
