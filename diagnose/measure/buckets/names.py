"""How a kernel name is read: in one spelling, and as the words of its function.

The same kernel is spelled differently by each profiler; names are brought to one spelling first, so that a pattern in `trace_rules/buckets`
is written once. A name that no pattern knows is read by its words: those of the function, without its namespaces, its arguments' types and
its template arguments, because a word in them says whose the kernel is or what it is handed, not what it does. Only a function that carries
another one (`device_kernel<…>`, `elementwise_kernel<…>`) is read by its template arguments, and one that says nothing with its namespace.
"""

from __future__ import annotations

import re

import polars as pl

from diagnose.knowledge.taxonomy import Taxonomy

# A literal template argument, a floating type, a substitution, a length-prefixed identifier: the parts of a mangled name with digits.
_MANGLED = re.compile(r"L(?:[a-z]|N\d\w*?E)n?\d+E|DF\d+[b_x]?|[ST]\d*_|(\d+)|[^\d]")
_QUALIFIED = re.compile(r"(?:N|K|V|L|St|S[absiod])*")
LONGEST = 1500  # characters of template arguments that are read
MOST = 12  # identifiers of a mangled symbol's template arguments among which they are looked for
READ = 2  # of the identifiers among a carrier's template arguments: what it carries, and what that carries
_MODULE = r"^kernel_cutlass_[a-z0-9_]*?kernel[a-z0-9_]*?_([a-z0-9_-]+)[A-Z]"  # where CuTe's class lies, glued to the kernel's own name
# What is read of the parts of its path, which CuTe joins without a sign between them.
_GLUED = "(attention|attn|gemm|quantization|quantize|layernorm|rmsnorm)"
# What CuTe and compilers add to a name: the types of its arguments, the number of a clone.
_COMPILED = r"_object_at_.*|_[Tt]ensor(?:ptr|o[^p]|gmem|000).*|\[clone.*"
_GUARD = r"^(?:typename )?std::enable_if<.*?>::type "  # what a template's condition leaves before the function's name
# Triton's name with the constants that it was compiled for behind it: NAME_value, in capitals.
_CONSTANTS = r"^(\w*_kernel)_[A-Z]{2,}[A-Z0-9]*_\w+"
# What Triton's older versions knew of a kernel's arguments: the number of each, with letters for divisible and constant ones.
_ARGUMENTS = r"^(\w*[A-Za-z0-9])_0(?:[cd]e?1[0-9cde]*|1[0-9e]*[cd][0-9cde]*)$"
_HABIT = "^k_"  # what some put before the name of every kernel; no keys of attention
_ROOMS = r"\b(?:details?|internal|impl|kernels?|ops|native|device|cuda|hip|gpu)(?: |$)"  # namespaces that divide a library's sources
_NESTED = 4  # parentheses within parentheses that are taken out of template arguments
_STRUCTURE = r"\b[A-Z]\w*(?:Param|Arg|Batch|Problem|Plan|Task|Config|Desc|Info)\w*"  # a type that gathers a kernel's arguments
# Among template arguments: types, and wrappers that let a kernel be compiled for one architecture only.
_SILENT = (
    r"\b(?:float|double|half|bool|true|false|int|unsigned|signed|long|short|char|void|const|struct|class|typename|auto|u?int\d+_t|size_t|__nv_\w+|__half2?|__hip_\w+|hip_bfloat16|"
    r"bfloat16_t|half_t|BFloat16|Half|tuple|std|enable_\w+|C|_\d+|[A-Z])\b"
)


def demangled(name: str) -> str:
    """The identifiers of an Itanium-mangled symbol joined by `::`, ahead of the symbol itself; other names unchanged.

    Profilers hand over the mangled symbol when the demangled name would exceed their limit. Templates are not rebuilt: only
    the words matter here. Enumerator arguments keep their mangled form in the symbol.
    """
    if not name.startswith("_Z"):
        return name
    return "::".join([*_identifiers(name, 2), " " + name])


def _identifiers(name: str, at: int, *, spaces: bool = True) -> list[str]:
    """The identifiers of a mangled symbol from a place on; without `spaces`, not those that another one follows: namespaces."""
    words: list[str] = []
    while at < len(name):
        match = _MANGLED.match(name, at)
        if match is None:
            break
        at = match.end()
        digits = match.group(1)
        if digits:
            length = int(digits[:4])
            if spaces or not name[at + length : at + length + 1].isdigit():
                words.append(name[at : at + length])
            at += length
    return [word for word in words if word]


def _owner_function_and_rest(symbol: str) -> tuple[str, str, str]:
    """What a mangled symbol's own name lies in, its last identifier, and those behind it but for namespaces; divided by blanks."""
    match = _QUALIFIED.match(symbol, 2)
    at = 2 if match is None else match.end()
    names: list[str] = []
    while (digits := re.compile(r"\d{1,4}").match(symbol, at)) is not None:
        at = digits.end() + int(digits.group())
        names.append(symbol[digits.end() : at])
    spaces = " ".join(name for name in names[:-1] if not name.startswith("_GLOBAL__N_"))
    return spaces, "".join(names[-1:]), " ".join(_identifiers(symbol, at, spaces=False)[:MOST])


def _symbol(name: str) -> str:
    """The mangled symbol in a name that `demangled` gave."""
    return name[name.rindex(" _Z") + 1 :]


def normalised(names: pl.Series) -> pl.Series:
    """`names` in one spelling: no leading `void` or condition, no constants behind a kernel's name, no unnamed namespaces, no casts before
    literals, `>>` without blanks.
    """
    frame = pl.DataFrame({"name": names.cast(pl.String)})
    mangled = frame["name"].str.starts_with("_Z").fill_null(value=False)
    if mangled.any():
        found = frame["name"].filter(mangled).unique()
        plain = pl.Series([demangled(name) for name in found], dtype=pl.String)
        frame = frame.with_columns(pl.col("name").replace(found, plain))
    text = (
        pl.col("name")
        .str.replace(r"\.kd$", "")
        .str.replace(r"^void ", "")
        .str.replace(_GUARD, "")
        .str.replace(r" \[clone [^\]]*\]$", "")
        .str.replace(_CONSTANTS, "${1}")
        .str.replace(_ARGUMENTS, "${1}")
        .str.replace_all(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N_\w*::", "")
        .str.replace_all(r"\(bool\)1", "true")
        .str.replace_all(r"\(bool\)0", "false")
        .str.replace_all(r"\((?:unsigned )?(?:int|long|short|char|long long)\)(-?\d)", "${1}")
        .str.replace_all(r"\s+([>*&])", "${1}")
    )
    return frame.select(text)["name"]


def _spaced(text: pl.Expr) -> pl.Expr:
    """A text as words in small letters, a blank before and after each: cases taken apart, sizes, versions and numbers left out."""
    return (
        text.str.replace_all("MoE", "Moe")
        .str.replace_all("RoP[Ee]", "Rope")
        .str.replace_all("ALiBi", "Alibi")
        .str.replace_all(r"(Grouped|Experts?|Moe|Sparse)GLU", "${1}Glu")
        .str.replace_all(r"([a-z])GLU", "${1}glu")
        .str.replace_all(r"([a-z])LU", "${1}lu")
        .str.replace_all(r"(Si|Ge|Re)Lu([^a-z]|$)", "${1}lu${2}")
        .str.replace_all("All[tT]o[aA]ll|All2All", "Alltoall")
        .str.replace_all("SoftMax", "Softmax")
        .str.replace_all(r"\bk([A-Z][a-z])", "${1}")
        .str.replace_all("MatMul", "Matmul")
        .str.replace_all("MemCpy", "Memcpy")
        .str.replace_all(r"([a-z])([A-Z])", "${1} ${2}")
        .str.replace_all(r"([0-9A-Z])([A-Z][a-z])", "${1} ${2}")
        .str.replace_all(r"([a-z][0-9]+)([A-Z][0-9])", "${1} ${2}")
        .str.replace_all(r"([A-Z]{2}(?:4|8|16|32))([ABCE-WYZ])", "${1} ${2}")
        .str.to_lowercase()
        .str.replace_all(r"[^a-z0-9]+", "  ")
        .pipe(lambda one: pl.concat_str(pl.lit(" "), one, pl.lit(" ")))
        .str.replace_all(r" fused([a-z]{3,})", " fused ${1}")
        # a product behind whose it is, in small letters
        .str.replace_all(r" (moe|expert|grouped|routed)([a-z]*gemm|gemv|mm|gmm|matmul|linear|mlp|ffn|proj)( |[0-9])", " ${1} ${2}${3}")
        .str.replace_all(r" group(gemm|gemv|mm|matmul|linear) ", " group ${1} ")
        .str.replace_all(r"([a-z]{2,}?)(b?float16|float32|float64|uint(?:8|16|32|64)) ", "${1} ${2} ")  # a type behind a word
        .str.replace_all(r"([a-z]{3,})([fb]wd) ", "${1} ${2} ")
        .str.replace_all(r" d +loss +d ", " grad ")  # the derivative of a loss by what follows
        .str.replace_all(r" ([a-z]{3,}[^kmnv \d])v[0-9] ", " ${1} ")  # a version glued to a word; no `gemv2`, `conv2`, `kv2`
        .str.replace_all(r" q([2-8])k ", " q${1} k ")  # GGUF's formats
        .str.replace_all(" fp64 ", " f64 ")  # no format of six bits
        .str.replace_all(r" group(?:size)?(?:16|32|64|128|256) ", " groupwise ")
        .str.replace_all(r" permute *[0-3]{3,4} ", " transpose ")  # an order of axes moves no tokens
        .str.replace_all(r" (?:v?[0-9]+) ", " ")
        .str.replace_all(r" cp  async ", " async ")  # an instruction, no context that is divided
        .str.replace_all(
            r"(gemm|gemv|matmul|mma|mfma|mm|tile|block|cast|quant|scaled?|transpose|attn|conv)[0-9]+(?:x[0-9]+)+ ", "${1} "
        )  # a tile's sizes
        .str.replace_all(
            r" (mxfp8|mxfp4|nvfp4|fp8|fp4|b?f16|fp16|e4m3|e5m2|e2m1|int8|int4)x(?:2|4|8|16) ", " ${1} "
        )  # elements taken at once
        .str.replace_all(r"([a-z])[0-9]{3,} ", "${1} ")
        .str.replace_all(r" d  ([a-z]{1,2}[0-9]?) ", " d${1} ")
        .str.replace_all(r"([a-z]{3,})([2348]bit) ", "${1} ${2} ")
        .str.replace_all(r" +", " ")
    )


def words_of(names: pl.Series, taxonomy: Taxonomy) -> pl.Series:
    """The words of each name (in the spelling of `normalised`).

    Its function's, or its template arguments' where the function only carries them; behind those of the namespace around it where they say
    nothing (`acme::kernels::gelu::cuda_kernel`). The outermost namespace is never read so: it says whose the kernel is.
    """
    head = pl.col("name").str.extract(r"^([^<(]*)")
    frame = pl.DataFrame({"name": names}).select(
        "name",
        head.str.extract(r"([^\s:]*)\s*$")
        .str.replace(_COMPILED, "")
        .str.replace(r"^kernel_cutlass_(?:_?kernel_[a-z0-9_-]*([A-Z][A-Za-z0-9_]*)$)?", "${1}")
        .alias("function"),
        pl.lit(None, dtype=pl.String).alias("template"),
        head.str.extract(r"([^\s]*)::[^:]*$").str.replace_all("::", " ").alias("owner"),
    )
    mangled = frame["name"].str.contains(r" _Z").fill_null(value=False)
    if mangled.any():
        symbols = frame["name"].filter(mangled)
        parts = pl.DataFrame(
            [_owner_function_and_rest(_symbol(name)) for name in symbols], schema=["owner", "function", "template"], orient="row"
        )
        places = mangled.arg_true()
        frame = frame.with_columns(frame[column].scatter(places, parts[column]) for column in parts.columns)
    unread = "|".join(taxonomy.sets.get("unread", ())) or r"\0"
    frame = frame.with_columns(_spaced(pl.col("function").str.replace(_HABIT, "")).str.replace_all(rf" (?:{unread}) ", " ").alias("words"))
    carrier = taxonomy.lines(("=@carrier",)).hold(frame["words"])
    places = (carrier & (frame["template"].is_not_null() | frame["name"].str.contains("<", literal=True))).arg_true()
    carried = frame[places].select(_spaced(_first(pl.coalesce("template", _template(pl.col("name"))))).alias("words"))["words"]
    told = pl.DataFrame({"carried": carried, "own": frame["words"].gather(places)})
    carried = told.select(pl.when(pl.col("carried") == " ").then("own").otherwise("carried")).to_series()
    words = frame["words"].scatter(places, carried)
    owner = frame.select(pl.col("owner").str.replace_all(_ROOMS, "").str.extract(r" (\S+)\s*$"))["owner"]
    bare = (taxonomy.lines(("=@bare",)).hold(words) & owner.is_not_null()).arg_true()
    around = owner.gather(bare).to_frame("name").select(_spaced(pl.col("name")).str.strip_chars_end().alias("words"))["words"]
    return words.scatter(bare, around + words.gather(bare))


def _template(name: pl.Expr) -> pl.Expr:
    """The identifiers of a name's template arguments, without namespaces and what stands in parentheses (a lambda has no own name)."""
    text = name.str.replace(r"^[^<]*", "").str.slice(0, LONGEST)
    for _ in range(_NESTED):
        text = text.str.replace_all(r"\([^()]*\)", "")
    return text.str.replace_all(r"::[{\[]lambda", " {").str.replace_all(r"\w+::", "")


def _first(identifiers: pl.Expr) -> pl.Expr:
    """The first identifiers that are no types."""
    return identifiers.str.replace_all(_SILENT, "").str.extract(rf"^[^A-Za-z_]*((?:[A-Za-z_]\w*[^A-Za-z_]*){{0,{READ}}})")


def namespaces_of(names: pl.Series) -> pl.Series:
    """The words of the namespaces, classes or Python modules that a name's function lies in, in the spelling of `normalised`."""
    mangled = names.str.contains(r" _Z").fill_null(value=False)
    spaces = pl.Series([_owner_function_and_rest(_symbol(name))[0] for name in names.filter(mangled)], dtype=pl.String)
    spaces = pl.Series("spaces", [None], dtype=pl.String).new_from_index(0, len(names)).scatter(mangled.arg_true(), spaces)
    path = (
        pl.when(pl.col("spaces").is_not_null())
        .then("spaces")
        .when(pl.col("name").str.starts_with("kernel_cutlass_"))
        .then(pl.col("name").str.extract(_MODULE).str.replace_all(_GLUED, " ${1} "))
        .otherwise(pl.col("name").str.extract(r"^([^<(]*)").str.extract(r"^(.*)::"))
    )
    return pl.DataFrame({"name": names, "spaces": spaces}).select(_spaced(path.fill_null("")).alias("words"))["words"]


def structures_of(names: pl.Series) -> pl.Series:
    """The words of the structures of arguments that a name's function is handed (`ExpertBatch`), in the spelling of `normalised`."""
    handed = pl.col("name").str.extract(r"\((.*)\)[^()]*$").fill_null("").str.replace_all(r"<.*>|\w+::", "")
    structures = handed.str.extract_all(_STRUCTURE).list.join(" ")
    return names.to_frame("name").select(_spaced(structures).alias("words"))["words"]


def range_words(texts: pl.Series) -> pl.Series:
    """The words of what a range says of itself: of the last two parts of a dotted path, of a file's name and function, of a class."""
    text = pl.DataFrame({"text": texts.cast(pl.String)}).select(
        _spaced(
            pl.col("text")
            .str.replace(r",.*$", "")
            .str.replace(r"^nn\.Module: ", "")
            .str.replace_all(r"\.py\(\d+\)", "")
            .str.extract(r"((?:[\w ]+[.:]+)?[\w ]+)[^\w]*$")
        ).alias("text")
    )
    return text["text"].fill_null(" ")
