"""What interpose.c does to one process: its clocks jump, its disk is slow. Its table is a file that all have mapped."""
import mmap
import pathlib
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROWS = 32
ROW = struct.Struct("=5q")
FIELDS = ("pid", "skew_ns", "mono_skew_ns", "sync_us", "count")
HOUR_NS = 3600 * 10**9
COMPILE = ["gcc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]


class Interpose:
    """The library and its table, in a directory that it is given. `environment`: of the processes that listen to it."""

    def __init__(self, directory):
        self.library, path = pathlib.Path(directory) / "interpose.so", pathlib.Path(directory) / "interpose.rows"
        if not self.library.exists():
            subprocess.run([*COMPILE, "-o", self.library, HERE / "interpose.c", "-ldl", "-lpthread"], check=True)
        if not path.exists():
            path.write_bytes(bytes(ROWS * ROW.size))
        with path.open("r+b") as file:
            self.table = mmap.mmap(file.fileno(), ROWS * ROW.size)
        self.environment = {"LD_PRELOAD": str(self.library), "COUPONS_INTERPOSE": str(path)}

    def _pid(self, i):
        return ROW.unpack_from(self.table, i * ROW.size)[0]

    def _row(self, pid):
        return next((i for i in range(ROWS) if self._pid(i) == pid), None)

    def _write(self, i, field, value):
        struct.pack_into("=q", self.table, i * ROW.size + FIELDS.index(field) * 8, value)

    def _new_row(self, pid):
        """One that nobody has, or had who is dead; all 0. The pid is written last."""
        i = next(i for i in range(ROWS) if not self._pid(i) or not pathlib.Path(f"/proc/{self._pid(i)}").exists())
        for field in FIELDS:
            self._write(i, field, 0)
        self._write(i, "pid", pid)
        return i

    def set(self, pid, **fields):
        """From now on the process lives with these; what is not named stays as it was, and counting begins anew."""
        i = self._row(pid)
        i = self._new_row(pid) if i is None else i
        for field, value in {"count": 0, **fields}.items():
            self._write(i, field, value)

    def get(self, pid, field):
        """count: how often the process met what was set. 0 if nothing ever was."""
        i = self._row(pid)
        return 0 if i is None else ROW.unpack_from(self.table, i * ROW.size)[FIELDS.index(field)]

    def count(self, pid):
        return self.get(pid, "count")

    def clear(self, pid):
        """Its clocks and disk are its own again."""
        i = self._row(pid)
        if i is not None:
            self._write(i, "pid", 0)
