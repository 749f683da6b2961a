"""Nova on one machine: everything is real but the hypervisors, the image store, the network and the identity service,
which are Nova's own fixtures. Touches this process: Nova keeps its state in globals, so there is one at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
import_module("nova.tests.functional")  # chooses threads, and has to come before everything else of Nova

from nova import context as nova_context  # noqa: E402
from nova import objects  # noqa: E402
from nova.compute import power_state  # noqa: E402
from nova.tests.functional import integrated_helpers  # noqa: E402
from nova.virt import fake  # noqa: E402
from oslo_utils import timeutils  # noqa: E402

from windfall_nova import command  # noqa: E402

PATIENCE_S = 60.0


class Hypervisor(fake.FakeDriver):  # type: ignore[misc]
    """A fake compute of a given size. Servers in `stubborn` neither stop nor go."""

    vcpus, memory_mb, local_gb = 8, 16000, 1000
    nodes_by_host: Mapping[str, Sequence[str]] = {}
    stubborn: ClassVar[set[str]] = set()
    failing: ClassVar[set[str]] = set()
    """Hosts on which every server fails to start."""
    powered_off: ClassVar[list[tuple[str, dict[str, str]]]] = []
    """Servers that were shut down, with their metadata at that moment."""

    consoles: ClassVar[dict[str, str]] = {}
    """What servers have written to their consoles."""

    def get_console_output(self, context: Any, instance: Any) -> str:
        return self.consoles.get(instance.uuid, "")

    def init_host(self, host: str) -> None:
        super().init_host(host)
        if host in self.nodes_by_host:
            self._set_nodes(list(self.nodes_by_host[host]))

    def spawn(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        if instance.host in self.failing:
            raise RuntimeError("this host starts nothing")
        super().spawn(context, instance, *args, **kwargs)

    def power_off(self, instance: Any, timeout: int = 0, retry_interval: int = 0) -> None:
        if instance.uuid in self.stubborn:
            raise RuntimeError("the server does not react")
        self.powered_off.append((instance.uuid, dict(instance.metadata)))
        if instance.uuid in self.instances:
            self.instances[instance.uuid].state = power_state.SHUTDOWN

    def destroy(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
        if instance.uuid in self.stubborn:
            raise RuntimeError("the server does not go")
        super().destroy(context, instance, *args, **kwargs)


fake.WindfallHypervisor = Hypervisor


class _Nova(integrated_helpers.ProviderUsageBaseTestCase):  # type: ignore[misc]
    """Nova's own base of functional tests, used for what it sets up."""

    compute_driver = "fake.WindfallHypervisor"

    def runTest(self) -> None:
        """It is no test."""


class Cloud:
    """One Nova. `preempting`: with our scheduler. `settings`: by (group, option)."""

    def __init__(self, preempting: bool = True, settings: Mapping[tuple[str, str], Any] | None = None) -> None:
        from nova import service

        self._managers = dict(service.SERVICE_MANAGERS)
        if preempting:
            command.install()
            import windfall_nova.manager  # noqa: F401  (registers [windfall])
        self.nova = _Nova("runTest")
        Hypervisor.stubborn.clear()
        Hypervisor.failing.clear()
        Hypervisor.powered_off.clear()
        Hypervisor.nodes_by_host = {}
        plain = {
            ("DEFAULT", "cpu_allocation_ratio"): 1.0,
            ("DEFAULT", "ram_allocation_ratio"): 1.0,
            ("DEFAULT", "disk_allocation_ratio"): 1.0,
            ("DEFAULT", "reserved_host_memory_mb"): 0,
            (
                "DEFAULT",
                "service_down_time",
            ): 3600,  # with 1,000 nodes a compute reports late
            ("quota", "instances"): -1,
            ("quota", "cores"): -1,
            ("quota", "ram"): -1,
        }
        if preempting:
            plain |= {("windfall", "grace"): 0.0, ("windfall", "poll_interval"): 0.02}
        for (group, option), value in {**plain, **(settings or {})}.items():
            self.nova.flags(**{option: value}, **({} if group == "DEFAULT" else {"group": group}))
        self.nova.setUp()
        self.api = self.nova.admin_api
        self.flavors: dict[tuple[Any, ...], str] = {}
        self.images: dict[str, str] = {}
        self.computes: dict[str, Any] = {}

    def close(self) -> None:
        from nova import service

        self.nova.doCleanups()
        service.SERVICE_MANAGERS.update(self._managers)

    @property
    def scheduler(self) -> Any:
        """The manager of the running scheduler."""
        return self.nova.scheduler_service.manager

    def host(self, name: str, nodes: Sequence[str] = ()) -> Any:
        """Start a compute service; with `nodes`, one that stands for many hosts."""
        if nodes:
            Hypervisor.nodes_by_host = {**Hypervisor.nodes_by_host, name: nodes}
        return self.nova.start_service("compute", host=name)

    def hosts(self, *names: str) -> None:
        """Exactly these hosts are in service; computes that are new are started."""
        for name in names:
            if name not in self.computes:
                self.computes[name] = self.host(name)
        services = {one["host"]: one for one in self.api.get_services(binary="nova-compute")}
        for name in self.computes:
            wanted = "enabled" if name in names else "disabled"
            if services[name]["status"] != wanted:
                self.api.put_service(services[name]["id"], {"status": wanted})

    def stage(self, hosts: Sequence[Any]) -> dict[str, str]:
        """Boot the instances of `windfall.placement` hosts, as old as they are there; return their uuids by id."""
        self.hosts(*(host.name for host in hosts))
        placed = [(host.name, one) for host in hosts for one in host.instances]
        made = {one.id: self.boot(one.id, one.resources, one.preemptible, host)["id"] for host, one in placed}
        now = timeutils.utcnow()  # one moment for all: booting them takes minutes on a busy machine
        for _, one in placed:
            self.age(made[one.id], one.run_s, now)
        return made

    def clear(self) -> None:
        """Delete all servers, and take back what tests have done to the hypervisors."""
        Hypervisor.stubborn.clear()
        Hypervisor.failing.clear()
        Hypervisor.powered_off.clear()
        everybody = {"all_tenants": "1"}
        for server in self.api.get_servers(detail=False, search_opts=everybody):
            self.api.delete_server(server["id"])
        until_s = time.monotonic() + PATIENCE_S
        while self.api.get_servers(detail=False, search_opts=everybody):
            if time.monotonic() > until_s:
                raise AssertionError("servers are still there")
            time.sleep(0.05)
        while any(amount for used in self.used().values() for amount in used.values()):
            if time.monotonic() > until_s:
                raise AssertionError(f"placement still counts {self.used()}")
            time.sleep(0.05)

    def set(self, group: str, **values: Any) -> None:
        """Change nova.conf of the running services."""
        self.nova.flags(**values, group=group)

    def down(self, host: str, is_down: bool = True) -> None:
        """Let a compute service be down, or up again."""
        found = next(one for one in self.api.get_services(binary="nova-compute") if one["host"] == host)
        self.api.put_service(found["id"], {"forced_down": is_down})

    def flavor(self, size: Mapping[str, float], **extra_specs: str) -> str:
        """The id of a flavor of this size; keys of extra specs have __ for a colon."""
        specs = {key.replace("__", ":"): value for key, value in extra_specs.items()}
        key = (size["vcpu"], size["ram_mb"], *sorted(specs.items()))
        if key not in self.flavors:
            self.flavors[key] = self.nova._create_flavor(
                memory_mb=int(size["ram_mb"]), vcpu=int(size["vcpu"]), disk=0, ephemeral=0, swap=0, extra_spec=specs
            )
        return self.flavors[key]

    def image(self, word: str) -> str:
        """The id of an image that says this of its servers."""
        if word not in self.images:
            found = self.nova.glance.create(
                None,
                {
                    "name": f"preemptible-{word}", "status": "active", "container_format": "bare",
                    "disk_format": "raw", "size": 1, "min_disk": 0, "min_ram": 0,
                    "properties": {"windfall_preemptible": word},
                },
            )  # fmt: skip
            self.images[word] = found["id"]
        return self.images[word]

    def boot(
        self, name: str, size: Mapping[str, float], preemptible: bool = False, host: str = "", hint: str = "",
        image: str = "", flavor: str = "", wait: bool = True, status: str = "ACTIVE",
    ) -> dict[str, Any]:  # fmt: skip
        """Boot through the API; on one host if one is named. `flavor`, `image`, `hint`: what each of them says."""
        word = flavor or ("true" if preemptible else "")
        specs = {"windfall__preemptible": word} if word else {}
        server = self.nova._build_server(name=name, flavor_id=self.flavor(size, **specs), networks="none")
        if image:
            server["imageRef"] = self.image(image)
        if host:
            server["host"] = host
        body: dict[str, Any] = {"server": server}
        if hint:
            body["os:scheduler_hints"] = {"windfall:preemptible": hint}
        made: dict[str, Any] = self.api.post_server(body)
        return self.wait_for(made["id"], status) if wait else made

    def boot_many(self, name: str, size: Mapping[str, float], count: int, status: str = "ACTIVE") -> None:
        """One request of several servers."""
        server = self.nova._build_server(name=name, flavor_id=self.flavor(size), networks="none")
        self.api.post_server({"server": {**server, "min_count": count, "max_count": count}})
        for one in self.api.get_servers(detail=False):
            if one["name"].startswith(f"{name}-"):
                self.wait_for(one["id"], status)

    def wait_for(self, uuid: str, status: str) -> dict[str, Any]:
        """The server when it has this status (and is not being changed)."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            server: dict[str, Any] = self.api.get_server(uuid)
            if server["status"] == status and (server["OS-EXT-STS:task_state"] is None or status == "ERROR"):
                return server
            if time.monotonic() > until_s or (server["status"] == "ERROR" and status != "ERROR"):
                raise AssertionError(f"server {server['name']} is {server['status']}: {server.get('fault')}")
            time.sleep(0.02)

    def wait_for_end(self, uuid: str) -> dict[str, Any]:
        """The server when it runs or has failed."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            server: dict[str, Any] = self.api.get_server(uuid)
            if server["status"] in ("ACTIVE", "ERROR"):
                return server
            if time.monotonic() > until_s:
                raise AssertionError(f"server {server['name']} is {server['status']}")
            time.sleep(0.05)

    def names(self) -> dict[str, str]:
        """Host by name of server, of all that exist."""
        servers = self.api.get_servers(detail=True)
        return {one["name"]: one["OS-EXT-SRV-ATTR:hypervisor_hostname"] for one in servers}

    def age(self, uuid: str, run_s: float, now: Any = None) -> None:
        """Let a server have run for this long."""
        with self._changing(uuid) as instance:
            instance.launched_at = (now or timeutils.utcnow()) - timedelta(seconds=run_s)
        if hasattr(self.scheduler, "_facts"):
            self.scheduler._facts.kept.servers.pop(uuid, None)

    def task_state(self, uuid: str, state: str | None) -> None:
        """Let something be going on with a server."""
        with self._changing(uuid) as instance:
            instance.task_state = state

    @contextmanager
    def _changing(self, uuid: str) -> Iterator[Any]:
        admin = self.admin_context()
        mapping = objects.InstanceMapping.get_by_instance_uuid(admin, uuid)
        with nova_context.target_cell(admin, mapping.cell_mapping) as targeted:
            instance = objects.Instance.get_by_uuid(targeted, uuid)
            yield instance
            instance.save()

    def admin_context(self) -> Any:
        return nova_context.get_admin_context()

    def used(self) -> dict[str, dict[str, int]]:
        """What placement counts, by host."""
        rows = self.nova.placement.get("/resource_providers").body["resource_providers"]
        return {
            row["name"]: self.nova.placement.get(f"/resource_providers/{row['uuid']}/usages").body["usages"]
            for row in rows
        }
