# SPDX-License-Identifier: (Apache-2.0 OR MIT)
# A recipe for Spack. Copy the folder into packages/ of a repository of yours, and:
#
#   spack install gresize            # what one person needs, and what nodes need
#   spack install gresize +slurm     # and the plugin for the slurmctld of that Slurm

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Gresize(MakefilePackage):
    """Tries Slurm jobs that ask for a GPU on a virtual one, and changes the request to the
    smallest resource of the site that holds them."""

    homepage = "https://github.com/gresize/gresize"
    git = "https://github.com/gresize/gresize.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("slurm", default=False, description="Build the plugin job_submit/gresize")

    depends_on("c", type="build")
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    depends_on("slurm@20.11:", when="+slurm")

    def setup_build_environment(self, env):
        if self.spec.satisfies("+slurm"):
            env.set("SLURM_PREFIX", self.spec["slurm"].prefix)

    def build(self, spec, prefix):
        # gresize-sandbox is told where its stage will lie; all others look beside themselves.
        make("build", f"PREFIX={prefix}")

    def install(self, spec, prefix):
        arguments = ["install", f"PREFIX={prefix}"]
        if spec.satisfies("+slurm"):
            arguments.append(f"SLURM_PLUGIN_DIR={prefix.lib.slurm}")
        make(*arguments)
