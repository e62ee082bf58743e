"""The outline of files in every language it knows, of folders, and what it says where it cannot help."""

import sys
from collections import Counter
from types import FrameType

import pytest

from acp_agent.core.errors import ToolError
from acp_agent.tools.outline import OutlineSymbol, outline
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

SAMPLES = {
    "py": (
        (
            "@dec\nclass A(B):  # a\n  # b\n  @property\n  async def x(self): pass\n\n"
            "  def y(\n  self,\n  ):\n    def inner(): pass\n"
        ),
        ["2 0 class A(B)", "5 1 async def x(self)", "7 1 def y( self, )"],
    ),
    "js": (
        "exports.f = function (a, b) { return 1 }\nA.prototype.m = function() {}\nclass C { q() {} }\nlet n = 1\n",
        ["1 0 exports.f = function (a, b)", "2 0 A.prototype.m = function()", "3 0 class C", "3 1 q()"],
    ),
    "ts": (
        "interface I { m(): void }\nexport type T = string\nenum E { A }\nexport abstract class C { y = () => 2 }\n",
        ["1 0 interface I", "1 1 m(): void", "2 0 type T = string", "3 0 enum E", "4 0 abstract class C", "4 1 y = ()"],
    ),
    "tsx": (
        "export default function App({a}: P) { return <b/> }\nconst use = (a: string): number => { return 1 }\n",
        ["1 0 function App({a}: P)", "2 0 use = (a: string): number"],
    ),
    "go": (
        "package a\ntype A struct {\n B int\n}\nfunc (a *A) Do(x int) error {\n return nil\n}\nfunc main() {}\n",
        ["2 0 type A struct", "5 0 func (a *A) Do(x int) error", "8 0 func main()"],
    ),
    "rs": (
        "pub enum E { A }\nimpl<T> Tr for S<T> { fn a(&self) -> u8 { 1 } }\nmacro_rules! m { () => {} }\nmod t {}\n",
        ["1 0 pub enum E", "2 0 impl<T> Tr for S<T>", "2 1 fn a(&self) -> u8", "3 0 macro_rules! m", "4 0 mod t"],
    ),
    "java": (
        "public class A extends B {\n  int run(String x) throws E { return 1; }\n  enum K { X }\n  A() {}\n}\n",
        ["1 0 public class A extends B", "2 1 int run(String x) throws E", "3 1 enum K", "4 1 A()"],
    ),
    "c": (
        "typedef struct { int a; } error;\nstatic int f(int x) { return x; }\nstruct s x;\nint g(void);\nint v = 1;\n",
        ["1 0 typedef struct error", "2 0 static int f(int x)", "4 0 int g(void)"],
    ),
    "cpp": (
        "namespace n {\ntemplate <class T> class V : public B<T> {\n  int size() const;\n};\nvoid f(int);\n}\n",
        ["1 0 namespace n", "2 1 class V : public B<T>", "3 2 int size() const", "5 1 void f(int)"],
    ),
    "h": (
        "EXPORT(char *) name(void);\ntypedef int (*fn)(int);\n#ifdef X\nint only(void);\n#endif\n",
        ["1 0 EXPORT(char *) name(void)", "2 0 typedef int (*fn)(int)", "4 0 int only(void)"],
    ),
}


def lines(found: list[OutlineSymbol]) -> list[str]:
    return [f"{symbol.line} {symbol.depth} {symbol.text}" for symbol in found]


def test_each_language_shows_its_symbols_with_lines_and_depth() -> None:
    for suffix, (text, expected) in SAMPLES.items():
        assert lines(outline(text, suffix)) == expected, suffix


def test_a_header_of_cplusplus_is_read_as_such() -> None:
    assert lines(outline("class A : public B {\n  void f() const;\n};\n", "h")) == [
        "1 0 class A : public B",
        "2 1 void f() const",
    ]


def test_a_broken_file_still_shows_what_can_be_read() -> None:
    found = lines(outline("class A:\n  def f(self:\n\nclass B:\n  def g(self): pass\n", "py"))
    assert "4 0 class B" in found


def test_deep_nesting_and_odd_characters_do_no_harm() -> None:
    assert outline("(" * 50_000, "js") == []
    assert outline("class \udc80: pass", "py") is not None
    assert lines(outline("def größe(ä: str): pass", "py")) == ["1 0 def größe(ä: str)"]
    assert len(
        outline("class A:\n" + "".join(f"{' ' * n}class A{n}:\n" for n in range(1, 60)) + " " * 60 + "x=1\n", "py")
    )


async def test_a_file_shows_its_lines_and_symbols() -> None:
    bench = Workbench({"a.py": "class A:\n    def f(self, x: int) -> int:\n        return x\n"})
    assert (await bench.run("outline", path="a.py")).text == "    1  class A\n    2    def f(self, x: int) -> int"


async def test_a_folder_shows_the_symbols_of_its_files_in_order() -> None:
    bench = Workbench(
        {
            "src/b.go": "package b\nfunc B() {}\n",
            "src/a.py": "def a(): pass\n",
            "src/empty.py": "",
            "src/notes.md": "# no code\n",
        }
    )
    text = (await bench.run("outline", path="src")).text
    assert text.splitlines() == [
        "src/a.py",
        "    1  def a()",
        "src/b.go",
        "    2  func B()",
    ]


async def test_a_large_folder_stops_at_a_limit_and_says_how_much_is_missing() -> None:
    files = {f"m{n:03}.py": "".join(f"def f{i}(): pass\n" for i in range(100)) for n in range(10)}
    shown = (await Workbench(files).run("outline")).text.splitlines()
    assert len(shown) < 520
    assert shown[-1] == "[5 files not shown: give a smaller path]"


async def test_a_large_folder_shows_the_classes_of_all_files_rather_than_the_methods_of_the_first():
    inner = "".join(f"    def m{number}(self): pass\n" for number in range(60))
    bench = Workbench({f"f{number:02}.py": f"class A{number}:\n{inner}\ndef f(): pass\n" for number in range(10)})

    shown = (await bench.run("outline", path=".")).text.split("\n")

    assert shown[:3] == ["f00.py", "    1  class A0", "   63  def f()"]
    assert shown[-3:] == ["    1  class A9", "   63  def f()", "[inner symbols are not shown: give the path of a file]"]
    assert len(shown) == 31


async def test_of_nested_symbols_as_many_levels_are_shown_as_fit():
    inner = "".join(f"    int m{number}();\n" for number in range(60))
    text = f"namespace n {{\nclass A {{\n{inner}}};\n}}\n"
    bench = Workbench({f"f{number:02}.cpp": text for number in range(10)})

    shown = (await bench.run("outline", path=".")).text.split("\n")

    assert shown[:3] == ["f00.cpp", "    1  namespace n", "    2    class A"]
    assert len(shown) == 31


async def test_a_class_in_a_namespace_counts_as_outer_in_a_large_folder():
    inner = "".join(f"    int m{number}();\n" for number in range(3))
    text = f"namespace n {{\ninline namespace v1 {{\nclass A {{\n{inner}}};\n}}\nint f();\n}}\n"
    bench = Workbench({f"f{number:03}.cpp": text for number in range(120)})

    shown = (await bench.run("outline", path=".")).text.split("\n")

    outer = ["    1  namespace n", "    2    inline namespace v1", "    3      class A", "    9    int f()"]
    assert shown[:5] == ["f000.cpp", *outer]
    assert shown[-7:-2] == ["f099.cpp", *outer]
    assert shown[-2:] == [
        "[inner symbols are not shown: give the path of a file]",
        "[20 files not shown: give a smaller path]",
    ]


async def test_the_symbols_of_a_large_folder_are_not_gone_through_once_a_level():
    inner = "".join(f"    def m{number}(self): pass\n" for number in range(60))
    bench = Workbench({f"f{number:02}.py": f"class A{number}:\n{inner}" for number in range(10)})
    calls = Counter[str]()

    def profile(frame: FrameType, event: str, _: object) -> None:
        calls[frame.f_code.co_name] += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        await bench.run("outline", path=".")
    finally:
        sys.setprofile(before)

    assert 0 < calls["_levels"] <= 10 * (61 + 1)


async def test_an_unknown_kind_of_file_says_which_are_known() -> None:
    bench = Workbench({"a.lua": "function f() end\n", "a.py": ""})
    with pytest.raises(ToolError, match=r"a\.lua: no outline for this kind of file \(known: Python, JavaScript"):
        await bench.run("outline", path="a.lua")
    with pytest.raises(ToolError, match="no such file"):
        await bench.run("outline", path="missing.lua")
    assert (await bench.run("outline", path="a.py")).text == "No symbols in a.py"
