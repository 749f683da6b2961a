"""What a pool may rent: instance types, zones, subnets and images, read from the API. Touches that only.

A catalogue changes rarely, so it is read when a pool opens and once a day; prices are read apart (`prices`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct

from windfall.pools.contract import CREDENTIALS, INVALID, PoolError
from windfall.pools.ec2.api import Account, Items, Json, Region
from windfall.pools.ec2.settings import HIBERNATE, ON_DEMAND, SPOT, Ec2Settings, launch_template

_TYPE, _TYPES_AT_ONCE = "instance-type", 100


class InstanceType(Struct, frozen=True):
    """One instance type in one region."""

    name: str
    cores: int
    memory_gb: float
    gpus: int = 0
    architecture: str = ""
    markets: tuple[str, ...] = (ON_DEMAND, SPOT)
    hibernates: bool = False


class Rentable(Struct, frozen=True):
    """One instance type in one zone and one market, and how it is started there. Its offer has the name `name`."""

    type: InstanceType
    region: str
    zone: str
    market: str
    image: str = ""
    subnet: str = ""

    @property
    def name(self) -> str:
        return f"{self.type.name}:{self.zone}:{self.market}"


Rentables = dict[str, Rentable]


def read_catalogue(account: Account, settings: Ec2Settings) -> Rentables | PoolError:
    """All that the settings allow, by name; an error if there is nothing."""
    found: Rentables = {}
    for region in account.regions.values():
        rentable = _of_region(region, settings)
        if isinstance(rentable, PoolError):
            return rentable
        found |= {each.name: each for each in rentable}
    if not found:
        where = ", ".join(account.regions)
        what = f"no instance type of {where} matches {', '.join(settings.types)}"
        hint = "with these zones, subnets, markets and the architecture of the image"
        return PoolError(f"{what} {hint}", INVALID)
    return found


def _of_region(region: Region, settings: Ec2Settings) -> list[Rentable] | PoolError:
    wanted = [{"Name": _TYPE, "Values": settings.types}]
    described = region.pages("describe_instance_types", "InstanceTypes", Filters=wanted)
    if isinstance(described, PoolError):
        return described
    types = {row["InstanceType"]: _type(row) for row in described if _wanted(row["InstanceType"], settings)}
    offerings = _offerings(region, sorted(types))
    if isinstance(offerings, PoolError):
        return offerings
    subnets = _subnets(region, settings)
    if isinstance(subnets, PoolError):
        return subnets
    images = _Images(region, settings)
    found = []
    for row in sorted(offerings, key=lambda row: (row["InstanceType"], row["Location"])):
        type_, zone = types.get(row["InstanceType"]), row["Location"]
        if (
            type_ is None
            or (settings.zones and zone not in settings.zones)
            or (settings.subnets and zone not in subnets)
        ):
            continue
        image = images.for_type(type_)
        if isinstance(image, PoolError):
            return image
        if image is None:
            continue
        found += [
            Rentable(type_, region.name, zone, market, image, subnets.get(zone, ""))
            for market in settings.markets
            if market in type_.markets and _can_be_interrupted(type_, market, settings)
        ]
    return found


def _offerings(region: Region, types: list[str]) -> Items | PoolError:
    """In which zones there are which of these types."""
    found: Items = []
    for first in range(0, len(types), _TYPES_AT_ONCE):
        rows = region.pages(
            "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone",
            Filters=[{"Name": _TYPE, "Values": types[first : first + _TYPES_AT_ONCE]}],
        )  # fmt: skip
        if isinstance(rows, PoolError):
            return rows
        found += rows
    return found


def _wanted(name: str, settings: Ec2Settings) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in settings.types)


def _can_be_interrupted(type_: InstanceType, market: str, settings: Ec2Settings) -> bool:
    return market != SPOT or settings.interruption != HIBERNATE or type_.hibernates


def _type(row: Json) -> InstanceType:
    classes = row.get("SupportedUsageClasses") or [ON_DEMAND, SPOT]
    gpus = sum(int(each.get("Count", 0)) for each in (row.get("GpuInfo") or {}).get("Gpus", ()))
    architectures = (row.get("ProcessorInfo") or {}).get("SupportedArchitectures") or [""]
    return InstanceType(
        name=row["InstanceType"],
        cores=int(row["VCpuInfo"]["DefaultVCpus"]),
        memory_gb=int(row["MemoryInfo"]["SizeInMiB"]) / 1024,
        gpus=gpus,
        architecture=next((each for each in architectures if each in ("x86_64", "arm64")), architectures[0]),
        markets=tuple(each for each in (ON_DEMAND, SPOT) if each in classes),
        hibernates=bool(row.get("HibernationSupported", False)),
    )


def _subnets(region: Region, settings: Ec2Settings) -> dict[str, str] | PoolError:
    """The first of the named subnets in each zone."""
    if not settings.subnets:
        return {}
    rows = region.pages(
        "describe_subnets", "Subnets", Filters=[{"Name": "subnet-id", "Values": settings.subnets}]
    )  # fmt: skip
    if isinstance(rows, PoolError):
        return rows
    order = {name: place for place, name in enumerate(settings.subnets)}
    found: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: order.get(row["SubnetId"], 0)):
        found.setdefault(row["AvailabilityZone"], row["SubnetId"])
    return found


class _Images:
    """The image for an instance type, or None if there is none of its architecture."""

    def __init__(self, region: Region, settings: Ec2Settings) -> None:
        self._region, self._settings = region, settings
        self._architectures: dict[str, str | PoolError] = {}
        self._template: str | PoolError | None = None

    def for_type(self, type_: InstanceType) -> str | PoolError | None:
        image = self._settings.image_for(self._region.name, type_.architecture)
        if not image and not self._settings.launch_template:
            return None
        used = image or self._image_of_template()
        if isinstance(used, PoolError):
            return used
        architecture = self._architecture(used) if used.startswith("ami-") else ""
        if isinstance(architecture, PoolError):
            return architecture
        return None if architecture and type_.architecture and architecture != type_.architecture else image

    def _image_of_template(self) -> str | PoolError:
        """Empty if the launch template names none, or may not be read: then types of every architecture are offered."""
        if self._template is None:
            wanted = launch_template(self._settings.launch_template)
            versions = [wanted.pop("Version")]
            rows = self._region.pages(
                "describe_launch_template_versions", "LaunchTemplateVersions", Versions=versions, **wanted
            )
            if not isinstance(rows, PoolError):
                self._template = next((str(row["LaunchTemplateData"].get("ImageId", "")) for row in rows), "")
            else:
                self._template = "" if rows.kind == CREDENTIALS else rows
        return self._template

    def _architecture(self, image: str) -> str | PoolError:
        if image not in self._architectures:
            rows = self._region.pages("describe_images", "Images", ImageIds=[image])
            if isinstance(rows, PoolError):
                self._architectures[image] = rows
            elif not rows:
                self._architectures[image] = PoolError(f"{self._region.name}: there is no image {image}", INVALID)
            else:
                self._architectures[image] = rows[0].get("Architecture", "")
        return self._architectures[image]
