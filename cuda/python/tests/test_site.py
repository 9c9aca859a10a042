"""sitecustomize: at the start of every interpreter, and not in the way."""

import os
import shutil
import textwrap
import unittest

from support import PACKAGE, STANDIN, Case


class TestSitecustomize(Case):
    def test_imports_nothing_but_sys(self):
        ours = set(self.run_python("import sys; print(*sorted(sys.modules))")[1].split())
        bare = set(self.run_python("import sys; print(*sorted(sys.modules))", PYTHONPATH=None)[1].split())
        self.assertEqual(ours, bare)

    def test_without_a_next_one_there_is_none(self):
        program = """
            import sys
            for _ in range(2):
                try:
                    import sitecustomize
                except ImportError as e:
                    print(type(e).__name__, e, e.name)
                else:
                    print("there is one:", sitecustomize.__file__ != %r)
            print("sitecustomize" in sys.modules)
            """ % os.path.join(PACKAGE, "sitecustomize.py")
        with_us, without = self.run_python(program), self.run_python(program, PYTHONPATH=None)
        self.assertEqual(with_us, without)
        _, out, _ = self.run_python(
            """
            try:
                import sitecustomize
            except ImportError:
                pass
            import sys
            print(len([f for f in sys.meta_path if "CuPy" in repr(f)]), %r in sys.path)
            """ % PACKAGE
        )
        self.assertEqual(out, "1 True\n")

    def test_next_one_runs_and_stands_in_sys_modules(self):
        theirs = self.write(
            "theirs/sitecustomize.py", "import sys; sys.path.append('/added'); print('theirs', __file__); NAME = 'theirs'"
        )
        for package in (PACKAGE, PACKAGE + "/"):
            with self.subTest(package):
                _, out, err = self.run_python(
                    "import sys, sitecustomize; print(sitecustomize.NAME, sys.path[1:3], sys.path[-1])",
                    PYTHONPATH=os.pathsep.join([package, theirs]),
                )
                self.assertEqual(out, "theirs %s/sitecustomize.py\ntheirs %s /added\n" % (theirs, [PACKAGE, theirs]))
                self.assertEqual(err, "")

    def test_errors_of_the_next_one_are_reported_as_without_us(self):
        for body in ("raise ValueError('bad')", "import no_such_module", "import sys; del sys.path[0]"):
            with self.subTest(body):
                theirs = self.write("theirs/sitecustomize.py", body)
                with_us = self.run_python("print('on')", path=[theirs])[1:]
                without = self.run_python("print('on')", PYTHONPATH=theirs)[1:]
                self.assertEqual(with_us, without)

    def test_absent_under_flags(self):
        for flag in ("-S", "-I", "-E"):
            with self.subTest(flag):
                _, out, _ = self.run_python(
                    "import sys; print([type(f).__name__ for f in sys.meta_path if 'CuPy' in repr(f)])", flags=[flag]
                )
                self.assertEqual(out, "[]\n")

    def test_loader_of_cupys_module_is_its_own_again(self):
        _, out, _ = self.run_python(
            """
            import sys, cupy.cuda.memory_hook as m
            print(type(m.__spec__.loader).__name__, vars(m.__spec__.loader).keys() - {"name", "path"})
            print([f for f in sys.meta_path if "CuPy" in repr(f)])
            """,
            path=[STANDIN],
        )
        self.assertEqual(out, "SourceFileLoader set()\n[]\n")

    FINDER = """
        import sys
        from importlib.machinery import PathFinder
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "cupy.cuda.memory_hook":
                    spec = PathFinder.find_spec(name, path, target)
                    %s
                    return spec
        sys.meta_path.insert(0, Finder())
        """

    def test_finders_of_the_program_in_front(self):
        patch = "spec.loader.exec_module = lambda m, run=spec.loader.exec_module: (run(m), print('theirs'))"
        see = """
            from cupy.cuda.memory_hook import __spec__ as s, get_memory_hooks
            import sys
            print(list(get_memory_hooks()), type(s.loader).__name__, sorted(vars(s.loader)))
            print([type(f).__name__ for f in sys.meta_path if type(f).__name__ == "Finder" or "CuPy" in repr(f)])
            """
        for name, body in (("plain", "pass"), ("patches the loader", patch)):
            keys = ["exec_module"] * (body == patch) + ["name", "path"]
            said = "theirs\n" * (body == patch) + "['gpurec'] SourceFileLoader %s\n['Finder']\n" % keys
            theirs = self.write("theirs/sitecustomize.py", self.FINDER % body)
            with self.subTest(name + ", by sitecustomize"):
                self.assertEqual(self.run_python(see, path=[theirs, STANDIN])[1], said)
            with self.subTest(name + ", later"):
                program = textwrap.dedent(self.FINDER % body) + textwrap.dedent(see)
                self.assertEqual(self.run_python(program, path=[STANDIN])[1], said)

    def test_a_broken_package_does_not_break_the_import_of_cupy(self):
        copy = os.path.join(self.dir, "copy")
        os.mkdir(copy)
        shutil.copy(os.path.join(PACKAGE, "sitecustomize.py"), copy)
        self.write("copy/gpurec/__init__.py", "raise RuntimeError('broken')")
        _, out, err = self.run_python("import cupy; print('on')", PYTHONPATH=os.pathsep.join([copy, STANDIN]))
        self.assertEqual((out, err), ("on\n", ""))


if __name__ == "__main__":
    unittest.main()
