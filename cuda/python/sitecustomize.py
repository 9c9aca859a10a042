"""Puts gpurec's CuPy hook into every interpreter below ``gpurec run``.

``gpurec run`` puts this file's directory first on PYTHONPATH, so the
interpreter imports this module at its start, and neither under -S nor -I nor
-E. It promises to import nothing but sys, to run the sitecustomize that would
have run without it, and to leave sys.modules as that one leaves it, or without
a sitecustomize where there is none; also in a Python too old for package gpurec,
which PYTHONPATH reaches as well. All it adds is one finder, which waits for
CuPy's hooks and then steps aside.
"""

import sys


CUPYS_HOOKS = "cupy.cuda.memory_hook"


class _AfterCuPysHooks:
    """Finds nothing itself: sees CuPy's hooks being looked for, and has
    gpurec's hook installed once that module has run.

    A finder in front of this one may find the module alone, and nobody would
    know. So each later look for a module of CuPy's is a second chance.
    """

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("cupy"):
            return None
        module = sys.modules.get(CUPYS_HOOKS)
        if name != CUPYS_HOOKS and getattr(module, "get_memory_hooks", None) is None:
            return None  # not yet there, or not yet run
        try:
            sys.meta_path.remove(self)
        except ValueError:
            return None  # taken out by somebody while in use: they want no hooks of ours
        if name != CUPYS_HOOKS:
            _install(module)
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is None:
                continue
            _call_after(spec.loader)
            return spec
        return None


def _install(module):
    try:
        from gpurec import _cupy

        _cupy.install(module)
    except Exception:  # the program's import of CuPy goes on as if we were not here
        pass


def _call_after(loader):
    """Let loader run its module as ever, and then the installation.

    The instance is patched, not replaced: a loader of ours would stand in the
    module's __spec__, where inspect, pkgutil and pickles of it look. Somebody
    else may have patched it too, and finds that as it was.
    """
    run = getattr(loader, "exec_module", None)
    if run is None:
        return

    def exec_module(module):
        try:
            if theirs:
                loader.exec_module = run
            else:
                del loader.exec_module
        except AttributeError:
            pass
        run(module)
        _install(module)

    try:
        theirs = "exec_module" in getattr(loader, "__dict__", ())
        loader.exec_module = exec_module
    except AttributeError:
        pass  # a loader without room for it: its modules stay unhooked


def _run_next():
    """Run the sitecustomize that this one stands in front of, if there is one.

    Its exceptions are the interpreter's to report, as without us; so is that
    there is none, which the interpreter expects and passes over: importing us
    has failed then, and no trace of it stays in sys.modules. It may change
    sys.path: our entry goes back to its place among what it leaves.
    """
    path, modules = sys.path, sys.modules
    here = __file__.rpartition("/")[0]
    places = [i for i, p in enumerate(path) if p.rstrip("/") == here]
    if not places:
        return  # not reached through sys.path: nothing to stand in front of
    ours = modules.pop(__name__)
    entry = path.pop(places[0])
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        modules.setdefault(__name__, ours)  # where the import of us looks for it
        raise
    finally:
        if entry not in path:
            path.insert(places[0], entry)


if __name__ == "sitecustomize":
    # In a Python that the package is written for, and once: a program that asks
    # for a sitecustomize that is not there comes here again.
    _finder = None
    if sys.version_info >= (3, 9) and not any(type(f).__name__ == "_AfterCuPysHooks" for f in sys.meta_path):
        _finder = _AfterCuPysHooks()
        sys.meta_path.insert(0, _finder)
    try:
        _run_next()
    finally:
        if _finder in sys.meta_path[1:]:  # the next one's finders come after it
            sys.meta_path.remove(_finder)
            sys.meta_path.insert(0, _finder)
