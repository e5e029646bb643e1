"""The tag of the wheel: libl2s.so fits every Python 3, and every system from the glibc on that it needs."""
import platform
import re
import subprocess

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

LIBRARY = "l2s/libl2s.so"
# What the policies of manylinux let a wheel need.
ALLOWED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def readelf(flag):
    return subprocess.run(["readelf", "-W", flag, LIBRARY], check=True, capture_output=True, text=True).stdout


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d")))
        if needed - ALLOWED:
            raise SystemExit(f"{LIBRARY}: found that it needs {sorted(needed - ALLOWED)}, expected the C library alone")
        glibc = max(tuple(map(int, v)) for v in re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--dyn-syms")))
        return "py3", "none", "manylinux_%d_%d_%s" % (*glibc, platform.machine())


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Binary)
