"""A root below which Debian has what a package needs, and nothing else: copied from this machine's packages, as they came."""
import os
import pathlib
import re
import stat
import subprocess

INFO = pathlib.Path("/var/lib/dpkg/info")
# What the installation of a system does, and what a shell redirects to.
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def fields_of(package):
    """The control fields of a package's file."""
    return stanza(run("dpkg-deb", "-f", package))


def stanza(text):
    return dict(re.findall(r"^(\S+):[ ]?((?:.*)(?:\n .*)*)", text, re.M))


class Installed:
    """This machine's packages."""

    def __init__(self):
        self.stanzas, self.providers = {}, {}
        for text in pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n"):
            fields = stanza(text)
            if fields.get("Status") != "install ok installed":
                continue
            name = fields["Package"]
            self.stanzas[name] = (text, fields)
            for provided in [name, *re.findall(r"(?:^|, )([^\s,]+)", fields.get("Provides", ""))]:
                self.providers.setdefault(provided, []).append(name)

    def needed(self, relations):
        """With all they need: for each of `relations`, the first of its alternatives that is here. And what every system has."""
        found = {name for name, (_, fields) in self.stanzas.items() if fields.get("Essential") == "yes" or fields["Priority"] == "required"}
        todo = [*found]

        def add(relations):
            for relation in filter(None, re.split(r",\s*", relations)):
                names = [re.match(r"[^\s:(]+", alternative.strip())[0] for alternative in relation.split("|")]
                here = [p for name in names for p in self.providers.get(name, [])]
                assert here, f"this machine has none of {names}"
                if not found & set(here):
                    found.add(here[0])
                    todo.append(here[0])

        add(relations)
        while todo:
            fields = self.stanzas[todo.pop()][1]
            add(fields.get("Pre-Depends", ""))
            add(fields.get("Depends", ""))
        return sorted(found)


def allowed():
    """Whether this process may make such a machine: it is root, and may mount."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


class CleanRoot:
    """`relations` as a control file has them, and what they need, below `root`; commands run in it as in a machine of its own."""

    def __init__(self, root, relations):
        self.root = pathlib.Path(root)
        here = Installed()
        names = here.needed(relations)
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                (self.root / "usr" / name).mkdir(parents=True)
                (self.root / name).symlink_to(f"usr/{name}")
        files = self.root / "files"
        lists = [next(p for p in (INFO / f"{n}.list", *INFO.glob(f"{n}:*.list")) if p.exists()) for n in names]
        wanted = sorted({line for path in lists for line in path.read_text().splitlines() if line not in ("", "/.")})
        files.write_text("".join(f"{line[1:]}\n" for line in wanted if os.path.lexists(line)
                                 and not re.match(r"/usr/share/(doc|man|locale|info)/|/(s?bin|lib(64)?)$", line)))
        archive = subprocess.Popen(["tar", "-C", "/", "--no-recursion", "-T", files, "-cf", "-"], stdout=subprocess.PIPE)
        run("tar", "-C", self.root, "--keep-directory-symlink", "-xf", "-", stdin=archive.stdout)
        archive.stdout.close()
        assert archive.wait() == 0
        files.unlink()
        self._as_installed(names, lists, here)

    def _as_installed(self, names, lists, here):
        """What the packages' own scripts did."""
        dpkg = self.root / "var/lib/dpkg"
        for place in ("info", "updates", "triggers"):
            (dpkg / place).mkdir(parents=True, exist_ok=True)
        for path in lists:
            (dpkg / "info" / path.name).write_bytes(path.read_bytes())
        # Files of /etc are as this machine has them, and no longer anybody's.
        (dpkg / "status").write_text("".join(re.sub(r"^Conffiles:\n(?: .*\n)+", "", here.stanzas[n][0] + "\n", flags=re.M) + "\n" for n in names))
        (dpkg / "available").touch()
        for name in ("passwd", "group"):
            master = self.root / "usr/share/base-passwd" / f"{name}.master"
            (self.root / "etc" / name).write_bytes(master.read_bytes())
        (self.root / "etc/shadow").touch(0o600)
        alternatives = self.root / "etc/alternatives"
        alternatives.mkdir(exist_ok=True)
        for name in ("awk", "which"):
            (alternatives / name).unlink(missing_ok=True)
            (alternatives / name).symlink_to(os.readlink(f"/etc/alternatives/{name}"))
            (self.root / "usr/bin" / name).unlink(missing_ok=True)
            (self.root / "usr/bin" / name).symlink_to(f"/etc/alternatives/{name}")
        for name, numbers in DEVICES.items():
            os.mknod(self.root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
            os.chmod(self.root / "dev" / name, 0o666)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            (self.root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
        os.chmod(self.root / "tmp", 0o1777)
        os.chmod(self.root, 0o755)
        run("chroot", self.root, "ldconfig")

    def words(self, command, user=None, groups=()):
        """`command`, to be run in there, by root or another user. /proc is mounted for it alone, so nothing is left to be unmounted."""
        who = [f"--userspec={user}", f"--groups={','.join(groups)}"] if user else []
        return [*map(str, ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$@"', self.root, *who, self.root,
                           *command])]

    def run(self, *command, user=None, groups=(), **options):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", **options.pop("env", {})}
        return run(*self.words(command, user, groups), env=environment, stdin=subprocess.DEVNULL, **options)

    def listed(self):
        return {str(p.relative_to(self.root)) for p in self.root.rglob("*")}
