"""A corpus of harmless work: commands as a coding agent runs them, in the order of a day's work.

Owns: the commands, and the workspace they begin in. Does not own: playing them (harmless_play).
Each command must end with status 0, and many look at what an earlier one made, so a command that only seems to work
fails the next. Only programs of an ordinary machine are used, and what the person's own virtual environment holds.
"""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

COMMIT = "git -c user.name=a -c user.email=a@example.org commit -qm"
PNG = (
    "python3 -c \"import zlib,struct;c=lambda k,d:struct.pack('>I',len(d))+k+d+struct.pack('>I',zlib.crc32(k+d));"
    "open('{}','wb').write(b'\\x89PNG\\r\\n\\x1a\\n'+c(b'IHDR',struct.pack('>IIBBBBB',9,9,8,0,0,0,0))"
    "+c(b'IDAT',zlib.compress(bytes(90)))+c(b'IEND',b''))\""
)
PYTEST = "PYTHONPATH=.venv/lib python3 -m pytest -q"
RUFF = ".venv/bin/ruff"

LOOKING = """
ls -la
find . -name '*.py' -not -path './.venv/*' | sort
cat README.md
wc -l calc/*.py
grep -rn 'def ' calc
git status --short
git log --oneline
git diff --stat
head -5 calc/core.py
tail -3 tests/test_core.py
python3 -c 'import calc.core; print(calc.core.add(1, 2))'
du -sh calc
file README.md || true
sort -u README.md
git ls-files | wc -l
stat -c %s README.md
awk '{print NF}' README.md
git show --stat HEAD
git branch -a
env | sort | head -3
"""

TESTING = f"""
{PYTEST} tests
{PYTEST} tests -k add
{PYTEST} tests --junitxml=report.xml && grep -q testsuite report.xml
{PYTEST} tests -x --tb=short
{PYTEST} tests/test_core.py::test_add
{PYTEST} tests --collect-only
python3 -m unittest -q tests.test_units
python3 -m compileall -q calc
test -d calc/__pycache__
python3 -m doctest README.md
python3 -m trace --count -C counts calc/core.py && ls counts
rm -rf counts
{PYTEST} --lf tests
test -d .pytest_cache
python3 -m cProfile -o profile.out calc/core.py
python3 -c "import pstats; pstats.Stats('profile.out').print_stats(1)"
rm profile.out
find . -name '*.pyc' -not -path './.venv/*' | head -1 | grep -q pyc
{PYTEST} tests -p no:cacheprovider
rm -rf .pytest_cache calc/__pycache__ tests/__pycache__
test ! -e calc/__pycache__
rm report.xml
"""

FORMATTING = f"""
{RUFF} check calc tests
{RUFF} format --check calc || true
{RUFF} format calc tests
{RUFF} check --fix calc
git diff --stat
sed -i 's/return a - b/return a + -b/' calc/core.py
grep -q 'a + -b' calc/core.py
sed -i 's/return a + -b/return a - b/' calc/core.py
perl -pi -e 's/Adds/Sums/' README.md
grep -q Sums README.md
perl -pi -e 's/[ \\t]+$//' calc/*.py
awk '{{sub(/[ \\t]+$/, ""); print}}' README.md > README.tmp && mv README.tmp README.md
printf 'import os\\nimport sys\\n' > unsorted.py && {RUFF} check --select I --fix unsorted.py
rm unsorted.py
{RUFF} check --output-format json calc > lint.json && cat lint.json
rm lint.json
expand README.md > README.tmp && cat README.tmp > README.md && rm README.tmp
git diff --check
{RUFF} clean
python3 -m json.tool data/rows.json data/pretty.json && test -s data/pretty.json
"""

EDITING = """
mkdir -p docs notes/2026
printf '# Guide\\n\\nHow it works.\\n' > docs/guide.md
echo '- first' >> notes/2026/log.md
cat >> docs/guide.md <<'END'
More words, also in other letters: Grüße, 你好, ✓.
END
cp docs/guide.md docs/copy.md
mv docs/copy.md docs/tour.md
test -f docs/tour.md -a ! -e docs/copy.md
ln -s guide.md docs/latest.md
readlink docs/latest.md
rm docs/latest.md
touch calc/extra.py
printf 'def twice(x):\\n    return 2 * x\\n' > calc/extra.py
python3 -c 'from calc.extra import twice; assert twice(2) == 4'
cp -r docs docs-old
diff -r docs docs-old
rm -r docs-old
chmod 644 docs/guide.md
tee notes/tee.txt < README.md
split -l 2 README.md notes/part-
ls notes/part-*
cat notes/part-* > notes/whole.txt && cmp README.md notes/whole.txt
rm notes/part-*
mkdir -p a/b/c && rmdir -p a/b/c
sed 's/2 [*] x/x + x/' calc/extra.py > /tmp/e; diff -u calc/extra.py /tmp/e | patch calc/extra.py
grep -q 'x + x' calc/extra.py
python3 -c "import pathlib; pathlib.Path('notes/made.txt').write_text('made\\n')"
truncate -s 0 notes/made.txt
dd if=README.md of=notes/dd.txt status=none
install -m 644 README.md notes/installed.md
find notes -name '*.txt' -exec rm {} +
test ! -e notes/dd.txt
git mv docs/tour.md docs/walk.md || mv docs/tour.md docs/walk.md
ls docs/walk.md
seq 1 100 > notes/numbers
wc -l < notes/numbers
sha256sum README.md > notes/sums && sha256sum -c notes/sums
rm -r notes
"""

COMMITTING = f"""
git add -A
git status --short
{COMMIT} 'Write a guide'
git log --oneline | head -2
git checkout -q -b side
echo 'A line.' >> README.md
git add README.md && {COMMIT} 'Add a line'
git checkout -q -
git merge -q --no-edit side
git branch -d side
git stash list
echo 'Another.' >> README.md && git stash -q
git stash pop -q
git restore README.md
git tag v1
git describe --tags
git cherry-pick --abort || true
git checkout -q -b topic && echo t >> docs/guide.md && git add -A && {COMMIT} 'Topic'
git checkout -q - && git -c user.name=a -c user.email=a@example.org rebase -q topic
git reset -q --hard HEAD~1
git branch -D topic
git rm -q --cached docs/walk.md && git add docs/walk.md
git diff --cached --stat
git blame README.md
git show HEAD:README.md > /tmp/was && diff /tmp/was README.md
git archive HEAD -o src.tar && tar tf src.tar
rm src.tar
git gc -q
git fsck
git shortlog -s HEAD
"""

BUILDING = """
make
./build/hello
make -B build/hello
make clean && test ! -e build
make CFLAGS=-O2 && ./build/hello
gcc -c src/hello.c -o hello.o && test -s hello.o
gcc hello.o -o hello && ./hello
rm hello hello.o
gcc -shared -fPIC -o libhello.so src/hello.c && test -s libhello.so
ar rcs libhello.a build/hello.o && ar t libhello.a
rm libhello.a libhello.so
g++ -x c++ -c src/hello.c -o build/plus.o
gcc -E src/hello.c > build/hello.i && wc -l build/hello.i
gcc -S src/hello.c -o build/hello.s && head -2 build/hello.s
gcc -g --coverage src/hello.c -o build/covered && ./build/covered
objdump -d build/hello | head -8
strip build/hello && ./build/hello
cmake -S native -B native/out -DCMAKE_BUILD_TYPE=Release
cmake --build native/out
./native/out/native
cd native/out && ctest
cmake --build native/out --target clean
cmake --build native/out && ./native/out/native
rm -rf native/out && test ! -e native/out
cmake -S native -B native/out && make -C native/out && ./native/out/native
node -e 'require("fs").writeFileSync("build/out.js", "console.log(1)")' && node build/out.js
node web/index.js
node --check web/index.js
npm --version --offline
python3 -m zipapp app -o build/app.pyz -m 'main:run' && python3 build/app.pyz
gzip -k build/hello.s && test -s build/hello.s.gz
make clean
"""

PLOTTING = f"""
mkdir -p plots
{PNG.format("plots/one.png")}
{PNG.format("plots/two.png")} && cmp plots/one.png plots/two.png
ls -l plots
python3 -c "print('<svg xmlns=\\"http://www.w3.org/2000/svg\\"><rect width=\\"9\\" height=\\"9\\"/></svg>')" > plots/a.svg
grep -q svg plots/a.svg
python3 -c "import csv; csv.writer(open('plots/t.csv', 'w')).writerows([[n, n * n] for n in range(2000)])"
head -2 plots/t.csv && wc -l plots/t.csv
python3 -c "import json; json.dump({{'mean': 1.5}}, open('plots/result.json', 'w'), indent=1)"
jq .mean plots/result.json
sqlite3 data.db 'create table t (a); insert into t values (1), (2)'
sqlite3 data.db 'select sum(a) from t'
sqlite3 -csv data.db 'select * from t' > plots/db.csv && cat plots/db.csv
python3 -c "import pickle; pickle.dump([1, 2], open('cache.pkl', 'wb'))"
python3 -c "import pickle; assert pickle.load(open('cache.pkl', 'rb')) == [1, 2]"
rm cache.pkl data.db
python3 -c "import array; array.array('d', range(99)).tofile(open('raw.bin', 'wb'))" && xxd raw.bin | head -1
rm raw.bin
cp plots/one.png docs/figure.png
echo '![](figure.png)' >> docs/guide.md
python3 -c "print('\\n'.join(str(n / 7) for n in range(5000)))" > plots/series.txt && wc -l plots/series.txt
"""

PACKAGING = """
python3 -m venv --copies env
env/bin/python --version
env/bin/pip --version
env/bin/pip install -q --no-index wheels/tiny-1.0-py3-none-any.whl
env/bin/python -c 'import tiny; assert tiny.VALUE == 7'
env/bin/pip list --format=freeze | grep -q tiny
env/bin/pip show tiny
env/bin/pip freeze > frozen.txt && grep -q tiny frozen.txt
env/bin/pip uninstall -q -y tiny
env/bin/python -c 'import tiny' && exit 1 || true
env/bin/pip install -q --no-index --find-links wheels tiny
env/bin/python -m tiny
env/bin/pip check
env/bin/python -m compileall -q env/lib/python3*/site-packages/tiny.py
rm -rf env && test ! -e env
pip3 --version || true
mkdir -p node_modules/pad && echo 'module.exports = (s) => s + "."' > node_modules/pad/index.js
node -e 'console.log(require("pad")("x"))'
rm -rf node_modules
rm frozen.txt
"""

PACKING = """
tar czf src.tgz calc && tar tzf src.tgz
mkdir -p unpacked && tar xzf src.tgz -C unpacked && diff -r calc unpacked/calc
rm -r unpacked src.tgz
zip -qr calc.zip calc && unzip -l calc.zip
unzip -q calc.zip -d un && test -f un/calc/core.py
rm -r un calc.zip
tar cf - calc | tar xf - -C /tmp && ls /tmp/calc
xz -k -c README.md > README.md.xz && xz -dc README.md.xz | cmp - README.md
rm README.md.xz
bzip2 -c README.md | bunzip2 | cmp - README.md
base64 README.md > r.b64 && base64 -d r.b64 | cmp - README.md
rm r.b64
openssl rand -hex 8 || true
xargs -n1 basename < <(git ls-files) | sort | uniq -c
for n in 1 2 3; do echo $n > n$n; done; cat n1 n2 n3; rm n1 n2 n3
"""

GROUPS = (LOOKING, TESTING, FORMATTING, EDITING, COMMITTING, BUILDING, PLOTTING, PACKAGING, PACKING)

FILES = {
    "README.md": "# Calc\n\nAdds numbers.\n\n>>> 1 + 1\n2\n",
    "calc/__init__.py": "",
    "calc/core.py": "def add(a, b):\n    return a + b\n\n\ndef take(a, b):\n    return a - b\n",
    "tests/__init__.py": "",
    "tests/test_core.py": "from calc.core import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "tests/test_units.py": (
        "import unittest\n\nfrom calc.core import take\n\n\nclass TakeTest(unittest.TestCase):\n"
        "    def test_take(self):\n        self.assertEqual(take(3, 2), 1)\n"
    ),
    "data/rows.json": '[{"a": 1}, {"a": 2}]',
    "src/hello.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
    "native/CMakeLists.txt": (
        "cmake_minimum_required(VERSION 3.10)\nproject(native C)\nenable_testing()\nadd_executable(native main.c)\n"
        "add_test(NAME runs COMMAND native)\n"
    ),
    "native/main.c": '#include <stdio.h>\nint main(void) { puts("native"); return 0; }\n',
    "web/index.js": "console.log([1, 2].map((n) => n * 2).join());\n",
    "app/main.py": "def run():\n    print('app')\n",
    "Makefile": (
        "build/hello: build/hello.o\n\t$(CC) -o $@ $<\n"
        "build/hello.o: src/hello.c\n\tmkdir -p build && $(CC) $(CFLAGS) -c -o $@ $<\n"
        "clean:\n\trm -rf build\n.PHONY: clean\n"
    ),
    ".gitignore": "__pycache__/\n.venv/\nbuild/\n.pytest_cache/\n.ruff_cache/\n",
}


def commands_of(group: str) -> list[str]:
    """Returns the commands of a group, a line each. One that holds a text of several lines goes on to its END."""
    found: list[str] = []
    for line in group.strip().split("\n"):
        if found and "<<'END'" in found[-1] and not found[-1].endswith("\nEND"):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def all_commands() -> list[str]:
    return [command for group in GROUPS for command in commands_of(group)]


def make_workspace(root: Path) -> None:
    """Writes the files of a person who has worked here before: a repository, a virtual environment, a wheel."""
    for name, body in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    _make_environment(root / ".venv")
    (root / "wheels").mkdir()
    with zipfile.ZipFile(root / "wheels/tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "VALUE = 7\nprint('tiny')\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    for words in (["init", "-q"], ["add", "-A"], [*COMMIT.split()[1:], "Begin"]):
        subprocess.run(["git", *words], cwd=root, check=True)


def _make_environment(folder: Path) -> None:
    """Copies pytest and ruff from this interpreter, as a person would have installed them."""
    site = Path(sysconfig.get_paths()["purelib"])
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(site / name, folder / "lib" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(site / "py.py", folder / "lib/py.py")
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.executable).parent / "ruff", folder / "bin/ruff")
