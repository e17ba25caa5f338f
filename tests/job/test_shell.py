"""Launch scripts, statement by statement: each leaves 4 in L, as bash itself says, or what is not known; never another number."""

import shutil
import subprocess

import pytest

from diagnose.job.shell import read_script
from tests.builders.cases import for_each

EXPANSIONS = r"""
A=a.4.b; L=${A#*.}; L=${L%.*}
A=a.b.4; L=${A##*.}
A=4.a.b; L=${A%%.*}
A=ABCD; L=${#A}
A=(a b c d); L=${#A[@]}
A=(ab cdef); L=${#A[1]}
A=(abcd e); L=${#A}
A=(1 2 4); L=${A[2]}
A=(4 2); L=$A
A=(1 4); I=0; L=${A[I+1]}
A=(1 4); I=1; L=${A[$I]}
A=(--x); A+=(4); L=${A[1]}
B=4; A=B; L=${!A}
L=${A:-4}
L=${A-4}
A=; L=${A:-4}
A=; L=${A-5}4
L=${A:=4}; L=$A
A=5; L=${A:+4}
L=4${A:+5}
A=; L=4${A:+5}
A=; L=${A+4}
A=4; L=${A:?none}
A=5; unset A; L=${A:-4}
A=abcd; declare -A S=([ABCD]=4); L=${S[${A^^}]}
A=Big; declare -A S=([big]=4); L=${S[${A,,}]}
declare -A S; S[a]=4; L=${S[a]}
L="$(echo '4')"
L=$'4'
L=""4
"""
CALCULATIONS = r"""
L=$((7 / 2 + 1))
L=$((9 % 5))
L=$((7 + (0 - 7) / 2))
L=$((5 + (0 - 7) % 2))
L=$(((1 + 1) * 2))
L=$((1 != 2 ? 4 : 5))
L=$((4 <= 4 ? 4 : 5))
L=$((4 >= 5 ? 5 : 4))
L=$((2 > 1 && 3 > 4 ? 5 : 4))
L=$((2 < 1 || 3 < 4 ? 4 : 5))
N=1; L=$((N ? 4 : 5))
N=0; L=$((N ? 5 : 4))
N='2'; L=$((N * $N))
L=$(expr 2 + 2)
"""
CONDITIONS = r"""
if [ a = a ]; then L=4; else L=5; fi
if test a != a; then L=5; else L=4; fi
if [ a ]; then L=4; else L=5; fi
if [ '' ]; then L=5; else L=4; fi
if [ -z '' ]; then L=4; else L=5; fi
if [[ -n a ]]; then L=4; else L=5; fi
if [ ! a = b ]; then L=4; else L=5; fi
if [ a = b -o c = c ]; then L=4; else L=5; fi
if [ a = a -a b = c ]; then L=5; else L=4; fi
if [[ ab == a* ]]; then L=4; else L=5; fi
if [[ ab == "a*" ]]; then L=5; else L=4; fi
if [[ ab != a* ]]; then L=5; else L=4; fi
if [ ab = 'a*' ]; then L=5; else L=4; fi
if [[ ( a = a ) && b != c ]]; then L=4; else L=5; fi
if [[ a = b || ( b = c ) ]]; then L=5; else L=4; fi
if [ 1 -lt 2 ] && [ 2 -lt 1 ]; then L=5; else L=4; fi
if ! false; then L=4; else L=5; fi
if false; then L=5; elif true; then L=4; else L=6; fi
L=4; true || L=5
L=5; true && L=4
L=5; false || L=4
L=4; false && L=5
case ab in a*) L=4 ;; *) L=5 ;; esac
case ab in "a*") L=5 ;; *) L=4 ;; esac
case b in a|b) L=4 ;; *) L=5 ;; esac
L=5; case b in [ab]) L=4 ;; esac
L=4; case c in a) L=5 ;; esac
L=4; while false; do L=5; done
for i in 1 4 5; do L=$i; [ $i = 4 ] && break; done
for i in 1 2; do continue; L=5; done; L=${L:-4}
"""
COMMANDS = r"""
L=$(basename /a/4)
L=$(basename /a/4.sh .sh)
L=$(basename $(dirname /a/4/b))
L=$(basename $(realpath -m /a/../4))
L=$(echo -n 4 )
A=$(echo 1 4); L=${A#* }
read A L <<< '1 4'
f() { L=$2; }; f 1 4
f() { shift $1; L=$1; }; f 2 1 4
f() { for i in "$@"; do L=$i; done; }; f 1 4
f() { L=4; return; L=5; }; f
f() { local M=5; L=4; }; f
f() { local L; L=5; }; L=4; f
f() { local L=5; g; }; g() { L=6; }; L=4; f
f() { declare L=5; declare -g M=4; }; f; L=$M
L=5; eval L=4
A='L=4'; eval "$A"
L=4; (L=5)
A=4 true; L=${A:-4}
export L=4
L=4; : L=5
{ L=4; } > /dev/null 2>&1; : L=5
if true; then L=4; fi >> /dev/null < /dev/null; M=5
for i in 3 4; do L=$i; done 2> /dev/null; M=5
while false; do L=5; done < /dev/null; L=4
{ L=4; } <<< words; M=5
"""
NOT_KNOWN = r"""
L=7; let "L = 2 + 2"
L=2; ((L <<= 1))
A=(1 2); ((A[0] = 4)); L=${A[0]}
L=7; A=4x; L=${A/x/}
L=7; A=xx4; L=${A//x/}
L=7; A=x4x; L=${A/x/}; L=${L%x}
L=7; A=x5; L=${A/x5/4}
L=7; A=1234; L=${A:3}
L=7; A=1412; L=${A:1:1}
L=7; A=134; L=${A: 2}
L=7; A=(1 2 4); L=${A[-1]}
L=7; L=$((-4 * -1))
L=7; L=$((!0 * 4))
L=7; L=$((!1 == 0 ? 4 : 5))
L=7; ((L = 2 + 2))
L=7; N=2; let N+=1 N+=1; L=$N
L=7; N=3; ((N += 1)); L=$N
L=7; N=2; ((N *= 2)); L=$N
L=7; N=3; ((N++)); L=$N
L=7; N=3; (( ++N )); L=$N
L=7; N=5; ((N--)); L=$N
L=7; N=3; let N=N+1; L=$N
L=7; set -- 1 4; L=$2
L=7; set -- 1 4; shift; L=$1
L=7; set -- 1 2 3 4; shift 3; L=$1
L=7; read -ra A <<< '1 4'; L=${A[1]}
L=7; IFS=: read -ra A <<< 1:4; L=${A[1]}
L=7; printf -v L '%d' 4
L=7; [[ a < b ]] && L=4
L=7; [[ x4 =~ ^x ]] && L=4
L=7; [ -f /etc/passwd ] && L=4
L=7; mapfile -t A <<< 4; L=${A[0]}
L=7; for i in $(seq 4); do L=$i; done
L=7; for ((i = 0; i < 5; i++)); do L=$i; done
L=7; N=4; L=$((N++))
L=7; N=3; M=$((N++)); L=$N
L=7; N=3; : $((N += 1)); L=$N
L=7; L=$((~-5))
L=7; ((L = 2 ** 2))
"""


def held(body: str) -> str:
    """What L holds behind a script; empty where that is not known."""
    tokens = read_script(body).variables.get("L", ())
    return "" if any(one.unresolved for one in tokens) else " ".join(one.text for one in tokens)


@for_each("bodies", EXPANSIONS, CALCULATIONS, CONDITIONS, COMMANDS)
def test_a_script_leaves_what_bash_leaves(bodies: str) -> None:
    found = {body: held(body) for body in bodies.strip().splitlines()}
    assert {body: text for body, text in found.items() if text != "4"} == {}


def test_what_is_not_carried_out_is_not_known_rather_than_what_it_was() -> None:
    assert {body: text for body in NOT_KNOWN.strip().splitlines() if (text := held(body))} == {}


def test_a_function_is_read_where_it_is_called() -> None:
    script = read_script("train() { torchrun train.py --lr 1; }\nlast() { rm -r out; }\ntrap last EXIT\ntrain\n")
    assert [(run.tokens[0].text, run.conditional) for run in script.runs] == [("trap", False), ("torchrun", False)]


@for_each(
    "command, read",
    ('ssh node1 "torchrun train.py"', True), ("ssh node1 torchrun", False), ('ssh "a node" hostname', False),
    ('ssh "torchrun train.py"', False),
)  # fmt: skip
def test_what_ssh_is_told_in_one_text_is_read(command: str, read: bool) -> None:
    script = read_script(f"{command}\n")
    assert any(run.tokens[0].text == "torchrun" for run in script.runs) == read


def test_a_command_behind_a_condition_that_is_not_known_stands_under_none() -> None:
    script = read_script('if [ "$RANK" -gt 0 ]; then srun first.py; fi\nsrun second.py\n')
    assert [(run.tokens[1].text, run.conditional) for run in script.runs if run.tokens[0].text == "srun"] == [
        ("first.py", True),
        ("second.py", False),
    ]


def test_a_long_script_is_not_a_deep_one() -> None:
    assert held("if true; then (L=5); fi\n" * 200 + "L=4") == "4"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on the machine")
def test_bash_says_so() -> None:
    bodies = f"{EXPANSIONS}{CALCULATIONS}{CONDITIONS}{COMMANDS}{NOT_KNOWN}".strip().splitlines()
    said = subprocess.run(
        ["bash", "-c", "\n".join(f'(\n{body}\necho "$L")' for body in bodies if body)], capture_output=True, text=True, check=True
    )
    assert [(body, one) for body, one in zip(filter(None, bodies), said.stdout.splitlines(), strict=True) if one != "4"] == []
