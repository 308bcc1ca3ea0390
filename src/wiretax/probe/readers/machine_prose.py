"""Reads what people write in prose about their machine: versions, outcomes, symptoms, cards, clouds, IOMMU.

Observations:
    ``outcome``: ``subject`` (``driver``, ``kernel``, ``nccl``, ``torch``, ``cuda``, ``iommu``, ``acs`` or a variable's name), ``value``
    (``off`` and ``passthrough`` of IOMMU and ACS), ``outcome`` (``hang``, ``fail``, ``slow``, ``ok``, ``no_change``): "driver 560 -> hang".
    ``symptom``: ``what`` (``hang``, ``crash``, ``wrong_data``, ``slow``), ``with_p2p`` (the sentence names P2P), ``clause``.
    ``version.mention``: ``subject``, ``version``. ``gpu.mention``: ``count``, ``name``. ``gpu.mix``: ``first``, ``second``: two
    cards in one machine ("5090 + 3090 Ti"). ``cloud.mention``: ``provider``.
    ``pcie.told``: ``width``: a sentence puts a GPU on so few lanes (1, 2 or 4).
    ``peer.told``: ``access`` (False), ``reason`` (``chipset``, ``gpu``, ``topology``, None): a sentence says that the GPUs have no peer
    access. ``gdr.told``: ``enabled`` (False). ``p2p.told_slower``: a sentence says that it is faster without peer to peer.
    ``shm.cured``: a larger /dev/shm, or the host's, ended the trouble.
    ``wsl.mention``: the job ran under WSL.
    ``backend.mention``: ``backend`` (``gloo``, ``nccl``, ``mpi``) that a sentence or a setting names as the one in use.
    ``iommu.mention``: ``state`` (``translated``, ``passthrough``, ``off``, ``on``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from wiretax.model.machine import Software, Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.environment_text import INLINE
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import MOST_PROSE, MOST_PROSE_CHARACTERS, Line, Stream, may_be_prose, mentions, streams
from wiretax.probe.readers.words_in_english import in_english

FORMAT = "notes in prose"
CONTEXT_LINES = 12
"""So far below a line about several GPUs, a sentence without a subject ("it hangs") still speaks of them."""
_FAR_BEFORE = -(10**9)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)


_CLAUSE = re.compile(
    r"\s;\s|;\s|\s\|\s|\.\s|,\s(?=driver|kernel|NCCL|with|but|while|and|fine|ok|okay|works?|good|no hang)|\sbut\s|\swhile\s|\swhereas\s",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"\b(driver|nccl|torch|pytorch|cuda|kernel)(?:\s(?:version|branch|release))?\s?[:=]?\s?v?(\d{1,4}(?:\.[\w+-]{1,14}){0,3})",
    re.IGNORECASE,
)
_FROM_TO = re.compile(
    r"\b(driver|nccl|kernel|torch|pytorch)\b.{0,40}?\bfrom\s(\d[\w.+-]{0,15})\s(?:back\s|down\s|up\s)?to\s(\d[\w.+-]{0,15})", re.IGNORECASE
)
_SENTENCE = re.compile(r"\.\s(?=[A-Z])|[!?]\s|\s\|\s")
_ANOTHER = re.compile(
    r"\b(?:(?:up|down)grad(?:ed|ing|e)|going|went|back|switch(?:ed|ing)|updat(?:ed|ing|e)|on)\s(?:back\s)?(?:to\s)?v?(\d{1,4}(?:\.\d{1,6}){1,3})",
    re.IGNORECASE,
)
_HANGS = _words("hangs?|hanging|hung|stuck|freezes?|frozen|deadlocks?")
_FAILS = _words("fails?|failed|crash(?:es|ed)?|errors?|broken|does(?: not|n't) work|segfaults?|timeouts?|times out")
_SLOW = _words("slow|slower|slowdown|regression")
_GOOD = _words(
    "ok|okay|works?|working|fine|good|fixe[sd]|solve[sd]|resolve[sd]|no (?:hangs?|problems?|issues?)|(?:does not|doesn't|not) hang|"
    "passes|helps|helped|gone|cured?s?|disappears?|disappeared|(?:runs?|ran) (?:through|normally)|completes|succeeds|finishes|"
    r"(?:goes|going|went|runs?|running|ran) (?:\w{1,8} )?(?:well|smoothly)"
)
_CURED = _words(
    "(?:fix|solution|cure)(?: for (?:me|us|this))? (?:was|is)|fixe[sd]|"
    "(?:does|did) fix|solve[sd]|resolve[sd]|gone|cure[sd]|disappears?|disappeared|went away"
)
_NOT_CURED = _words(r"(?:not|never|n't|nothing) (?:\w{1,10} )?(?:fix(?:ed)?|solved?|resolved?|gone|cured?|disappear(?:ed)?|help(?:ed)?)")
_NO_CHANGE = _words("makes? no difference|no effect|no change|(?:does not|doesn't|did not|didn't) (?:help|change|matter)")
_NOT_BAD = _words("(?:no|not|doesn't|does not|without) (?:hangs?|problems?|issues?|errors?)")
_WRONG = _words(
    r"wrong data|wrong results?|corrupt(?:ed|ion|ing|s)?|not (?:being )?cop(?:y|ied|ying)\b.{0,20}? correctly|incorrectly copied|"
    r"mismatch(?:es|ed|ing)? (?:data|elements|values)|NaN loss|data mismatch|verification (?:errors?|failed|fails|failures?)|"
    r"silently (?:drops?|dropped|corrupts?|corrupted|loses?|lost)|zeroed(?: out)?|"
    r"(?:outputs?|results?|answers?|tensors?|buffers?|copies) .{0,30}?(?:all zeros?|garbage|gibberish)|"
    r"(?:produc\w{1,4}|generat\w{1,4}|outputs?|outputting|returns?|prints?|being|is|are) (?:only |pure |just )?(?:gibberish|garbage)|"
    r"(?:garbage|gibberish) (?:output|results?|tokens?|answers?|data)|"
    r"(?:loss|gradients?|grads?|outputs?) (?:is |are |becomes? |goes? |turns? )?(?:to )?NaNs?|copies .{0,30}return zeros"
)
_CONTEXT = _words(
    r"nccl\w*|(?:simple)?p2p\w*|peer|all_?reduce\w*|collectives?|ddp|fsdp|init_process_group|multi-?gpu|gpus|ranks?|workers?|barrier|dist\w*|training|"
    "torchrun|deepspeed|accelerate"
)
_BY = re.compile(r"->|=>|:|\b(?:with|set|using|setting|export)\b", re.IGNORECASE)
_UNLESS = re.compile(r"\b(?:unless|except (?:with|when|if)|until|without (?:setting |using )?(?=[`'\"]?(?:export )?NCCL_))", re.IGNORECASE)
_BOOT = re.compile(
    r"(?P<act>\b(?:disabl(?:e|ed|es|ing)|turn(?:ed|ing)? off|switch(?:ed|ing)? off|without|no)\b.{0,20}?)?"
    r"\b(?P<what>IOMMU|AMD-Vi|VT-d|ACS(?:Ctl)?|pcie_acs_override|intel_iommu|amd_iommu)\b"
    r"(?P<state>\s?=\s?(?:pt|off|on)\b|.{0,24}?\b(?:off|disabled|pass-?through|set to pt)\b)?",
    re.IGNORECASE,
)
_MAKES = r"(?:NVIDIA |GeForce |Tesla |Quadro |AMD |Radeon |Instinct )*"
_MODELS = (
    r"RTX PRO \d{4}|RTX A?\d{4}(?: Ti)?(?: SUPER)?(?: Ada)?D?|GTX \d{3,4}(?: Ti)?|TITAN \w{1,4}|A\d{2,4}G?(?:-(?:SXM4?|PCIE))?|H\d{2,3}|"
    r"B\d{3}|GB\d{3}|GH\d{3}|L\d{1,2}S?|V100S?|P100|P40|T4|K80|MI\d{2,3}[AX]?|[345]0[5-9]0(?: Ti)?D?"
)
_CARD = rf"({_MAKES}(?:{_MODELS}))"
_COUNTED = re.compile(rf"(?<![\w.])(\d{{1,2}})\s?[x\u00d7*]\s?{_CARD}(?:s\b|\b)", re.IGNORECASE)
_BACKEND = re.compile(r"\bbackend\b\W{1,6}(?:is |was |set to )?['\"]?(gloo|nccl|mpi)\b|\b(gloo|nccl|mpi) backend\b", re.IGNORECASE)
_MIXED = re.compile(rf"(?<![\w.]){_CARD} ?(?:\+|&) ?(?:\d ?[x\u00d7] ?)?{_CARD}\b", re.IGNORECASE)
_CLOUD = _words(r"vast\.?ai|runpod|lambda ?labs?|coreweave|paperspace|tensordock|jarvislabs|AWS|GCP|Azure|EC2|SageMaker|Colab|Kaggle")
_THIS_HANGS = re.compile(
    r"\b(?:it|this|that|everything|the (?:test|program|script|job|run|process|command)) (?:\w{1,10} ){0,2}?"
    r"(?:hangs?|hung|freezes?|(?:gets|is) stuck|deadlocks?)\b",
    re.IGNORECASE,
)
_MODEL = re.compile(r"\b(?:models?|tensors?|weights?|llama\.cpp|GPUs?|copy|copies)\b", re.IGNORECASE)
_P2P_WORD = r"(?:P2P|peer[- ]to[- ]peer|peer access)"
_P2P_OFF = re.compile(
    rf"\b(?:disabl(?:ed|es|ing)|without|no|turn(?:ed|ing)? off|switch(?:ed|ing)? off) {_P2P_WORD}\b"
    rf"|\b{_P2P_WORD} (?:access |transfers? |transport )?(?:(?:is|was|being|gets) )?(?:disabled|off|turned off|switched off)\b",
    re.IGNORECASE,
)
_MUCH = r"(?:much |even |actually |a lot |far |way )?"
_P2P_SLOWER = re.compile(
    rf"\bslower\b[^.;]{{0,40}}?\bthan\b[^.;]{{0,40}}?(?:{_P2P_OFF.pattern}|\bNCCL_P2P_DISABLE\s?=\s?1)"
    rf"|\b{_P2P_WORD} (?:is|was|being|seems?|looks) {_MUCH}slower than (?:the )?"
    r"(?:SHM|shared memory|host memory|staged|going through)"
    rf"|(?:{_P2P_OFF.pattern}|\bNCCL_P2P_DISABLE\s?=\s?1)[^.;]{{0,30}}?"
    rf"\b(?:is|was|makes it|runs?|gets?|becomes?) {_MUCH}faster\b"
    rf"|\bfaster (?:with|when|if|after|once) (?:I |we )?(?:{_P2P_OFF.pattern}|(?:set(?:ting)? )?NCCL_P2P_DISABLE\s?=\s?1)",
    re.IGNORECASE,
)
_P2P = re.compile(r"\b(?:simple)?p2p|peer", re.IGNORECASE)
_BETWEEN_GPUS = re.compile(
    r"\bbetween (?:the |my |two |different |multiple |both |\d )?(?:CUDA )?(?:GPUs|devices|cards)\b|\bcross-GPU\b"
    r"|\bfrom one GPU to (?:another|the other)\b",
    re.IGNORECASE,
)
"""A copy between GPUs is peer to peer unless the text says otherwise."""
_NO_PEER_BUILD = re.compile(r"GGML_CUDA_NO_PEER_COPY\s?=\s?(?:ON|1|true)\b", re.IGNORECASE)
_NO_ACCESS = re.compile(
    r"(?:\bP2P\b|\bpeer(?:[- ]to[- ]peer)?\b)(?: ?\((?:P2P|peer-to-peer)\))? (?:access |capability |communication |transfers? )?"
    r"(?:is|are) not (?:supported|available|possible) (?:between|on|for|by|with)\b"
    r"|\b(?:does not|doesn't|do not|don't) (?:support|have) (?:GPU ?)?(?:Direct )?(?:P2P|peer)"
    r"|\bwithout P2P support\b",
    re.IGNORECASE,
)
_LANES = re.compile(
    r"\b(?:PCI-?e|Gen) ?[2-5](?:\.0)?,? ?(?:@ ?|at )?[x\u00d7] ?([124])\b(?![.\d])"
    r"|\b[x\u00d7]([124]) (?:slots?|risers?|link|lanes?|mode|speed|adapters?|PCI|Gen|via|chipset)\b"
    r"|\b(?:slot|lanes?|link|riser) (?:is |at |of |in |only |runs? at |running at )?[x\u00d7]([124])\b(?![.\d])",
    re.IGNORECASE,
)
_GPU_NEAR = re.compile(r"\b(?:e?GPUs?\d?|cards?|risers?|[345]0[5-9]0(?: ?Ti)?|A\d{3,4}|[LH]\d{2,3})\b", re.IGNORECASE)
_MAYBE = re.compile(r"\b(?:if|whether|would|could|should|instead of|rather than|unused|free|empty|avoid)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\b(?:P2P|peer)\b.{0,160}?(?:\b(?:CNS|GNS|TNS)\b|\bchipset (?:is )?not supported\b)"
    r"|\bP2P\b.{0,20}?\(?(?:Chipset|GPU|Topology) not supported",
    re.IGNORECASE,
)
"""The driver's own reasons, as people quote them: "P2P shows CNS"."""
_REASONS = {"c": "chipset", "g": "gpu", "t": "topology"}
_REASON = re.compile(r"\b(?:[CGT]NS\b|(?:Chipset|GPU|Topology)(?= (?:is )?not supported))", re.IGNORECASE)
_IF = re.compile(r"\b(?:if|whether|when|unless|may|might|in case|some)\b", re.IGNORECASE)
_IF_ADVICE = re.compile(r"\b(?:try|should|could|would|may|might|whether|please)\b", re.IGNORECASE)
_ADVICE = re.compile(
    r"\b(?:only (?:when|if|where)|in case|if your|if you (?:see|get|have|encounter)"
    r"|(?:can|could|may|might) (?:potentially |also |sometimes )?(?:cause|lead to|result in))\b"
    r".{0,60}?\b(?:hang|hung|stuck|crash|fail|slow|wrong|corrupt)",
    re.IGNORECASE,
)
"""A guide says what to do if something hangs, a program what could come of it; that nothing hung."""
_MORE_SHM = re.compile(
    r"--ipc[= ]host\b|--shm[-_]size\b|\bshm_size\b|\bipc: ?host\b"
    r"|\b(?:larger|bigger|more|increas\w{1,4}|enlarg\w{1,4}|raising|raised) (?:the |of )?(?:size of )?(?:the )?"
    r"(?:/dev/shm|shm|shared memory)\b",
    re.IGNORECASE,
)
_NO_GDR = re.compile(
    r"\b(?:haven't|have not|hasn't|not|isn't|without) (?:\w{1,12} ){0,2}(?:GPU ?Direct ?RDMA|GDR|nv_peer_mem|nvidia[_-]peermem)\b"
    r"|\b(?:GPU ?Direct ?RDMA|GDR|nv_peer_mem|nvidia[_-]peermem) (?:is|was|are|module is) (?:not|disabled|off)\b",
    re.IGNORECASE,
)
_WSL = re.compile(r"\b(?:on|in|inside|under|using|with|within|via) (?:\w{1,12} )?WSL ?2?\b", re.IGNORECASE)
_ADDED = re.compile(
    rf"(?<![\w.]){_CARD}\b[^.;]{{0,60}}?\b(?:adding|add|added|plus|together with|alongside|along with) "
    rf"(?:a |an |one |my |the )?(?:second |old |extra |additional )?{_CARD}\b",
    re.IGNORECASE,
)
_IOMMU = re.compile(r"\b(?:IOMMU|AMD-Vi|VT-d|intel_iommu|amd_iommu)\b(.{0,60})", re.IGNORECASE)
_HINTS = (
    "driver", "nccl", "kernel", "torch", "cuda", "iommu", "amd-vi", "vt-d", "acs", "hang", "hung", "stuck", "freez", "deadlock", "corrupt",
    "mismatch", "gpudirect", "gpu direct", "gdr", "peermem", "peer_mem", "correctly", "wsl",
    "adding", "added", "plus", "together", "along", "verif", "silent", "zero", "garbage", "gibberish",
    "shm", "--ipc", "ipc:", "shared memory",
    "backend", "slow", "regress", "p2p", "peer", "wrong", "vast", "runpod", "aws", "gcp", "azure", "lambda",
    "coreweave", "paperspace", "tensordock", "jarvislabs", "ec2", "sagemaker", "colab", "kaggle",
)  # fmt: skip
_TAG = re.compile(r"^\s*#{0,4}\s*\[(?:bug|issue|question|help|usage|performance|solved|rfc|misc|doc)\]:? ?", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?<![\w*])[_*`]{1,2}(?=[A-Za-z])|(?<=[A-Za-z0-9])[_*`]{1,2}(?![\w*])")
_COUNT_HINT = re.compile(r"\b[x\u00d7][124]\b|\d\s?[x\u00d7*]\s?\w|\w ?[+&] ?\w", re.IGNORECASE)
_TABLE_OR_LOG = re.compile(r"\s*(?:[+]-|\|.*NVIDIA-SMI|\|--|\[\s*\d+\.\d+\]|\[\w*rank)|NCCL (?:INFO|WARN)|WorkNCCL", re.IGNORECASE)


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream says in prose, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    drivers: set[str] = set()
    translated = False
    num_sentences = num_characters = 0
    above = Line(-1, "")
    spoken_of = _FAR_BEFORE
    for raw in stream.lines:
        line = replace(raw, text=_plain(raw.text)) if len(raw.text) <= 1000 else raw
        text = line.text
        if len(text) > 1000 or not may_be_prose(text):
            continue
        spoken_of = line.number if _CONTEXT.search(text) else spoken_of
        if not (mentions(text.lower(), _HINTS) or _COUNT_HINT.search(text)) or _TABLE_OR_LOG.search(text):
            continue
        num_sentences += 1
        num_characters += len(text)
        if num_sentences > MOST_PROSE or num_characters > MOST_PROSE_CHARACTERS:
            break
        known = notes.num_added
        near = line.number - spoken_of <= CONTEXT_LINES
        drivers.update(_clauses(line, notes, above.text if above.number == line.number - 1 else "", near=near))
        _told(line, notes)
        translated = _iommu(line, notes) == "translated" or translated
        above = line
        if notes.num_added > known:
            lines.add(line.number)
    if not lines:
        return None
    # Two versions in one text are a comparison, not a machine's version.
    driver = drivers.pop() if len(drivers) == 1 else None
    software = Software(driver=driver if driver is not None and "." in driver else None)
    surroundings = Surroundings(iommu="translated" if translated else None)
    says_machine = software.driver or translated
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=stream.host, software=software, surroundings=surroundings) if says_machine else None,
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _plain(text: str) -> str:
    """A line without the marks that forums set around words and in front of titles (``[Bug]:``), its Chinese words in English."""
    if "_" in text or "*" in text or "`" in text:
        text = _EMPHASIS.sub("", text)
    return in_english(_TAG.sub("", text))


def _moves(line: Line, notes: pasted.Notes) -> set[str]:
    """Notes what came of going from one version to another; returns of what."""
    moved_subjects: set[str] = set()
    for sentence in _SENTENCE.split(line.text):
        moved = _FROM_TO.search(sentence)
        result = _outcome(sentence) if moved else None
        if moved and result:
            # "after going from A to B it works": A was bad. "since going from A to B it hangs": A was good.
            subject, before, after = moved.groups()
            bad = result if result not in ("ok", "no_change") else _outcome_word(line.text) or "fail"
            values = {"ok": (bad, "ok"), "no_change": ("no_change", "no_change")}.get(result, ("ok", bad))
            for version, what in zip((before, after), values, strict=True):
                notes.add(line.number, "outcome", subject=_subject(subject), value=version.rstrip(".,"), outcome=what)
            moved_subjects.add(_subject(subject))
    return moved_subjects


def _clauses(line: Line, notes: pasted.Notes, above: str, *, near: bool) -> Iterator[str]:
    """Notes versions, outcomes and symptoms clause by clause, and yields the versions of the driver."""
    text = line.text
    moved_subjects = _moves(line, notes)
    last_subject: str | None = None
    for clause in _CLAUSE.split(text):
        outcome = _outcome(clause)
        another = _ANOTHER.search(clause) if last_subject and outcome and not _SUBJECT.search(clause) else None
        if another and last_subject and _is_version(last_subject, another.group(1), clause[another.end() :]):
            notes.add(line.number, "outcome", subject=last_subject, value=another.group(1), outcome=outcome)
        for match in _SUBJECT.finditer(clause):
            subject, version = _subject(match.group(1)), match.group(2).rstrip(".+-")
            if not _is_version(subject, version, clause[match.end() :]):
                continue
            notes.add(line.number, "version.mention", subject=subject, version=version)
            last_subject = subject
            if subject == "driver":
                yield version
            if outcome and subject not in moved_subjects:
                notes.add(line.number, "outcome", subject=subject, value=version, outcome=outcome)
        variable = INLINE.search(clause)
        unless = _UNLESS.search(clause)
        if unless and outcome in ("hang", "fail", "slow"):
            # "hangs unless X": it hangs as it is, and X cures it.
            cure = clause[unless.end() :]
            variable = INLINE.search(cure)
            if variable:
                notes.add(line.number, "outcome", subject=variable.group(1), value=variable.group(2), outcome="ok")
            _boot(line, notes, cure, "ok")
        elif (
            not variable
            and outcome
            and outcome != "slow"
            and (off := _P2P_OFF.search(clause))
            and not _IF_ADVICE.search(clause[: off.start()])
        ):
            notes.add(line.number, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome=outcome)
        elif variable and outcome and (_BY.search(clause) or not re.search(r"\w", clause[: variable.start(1)])):
            notes.add(line.number, "outcome", subject=variable.group(1), value=variable.group(2), outcome=outcome)
        if outcome and not unless:
            _boot(line, notes, clause, outcome)
        if _ADVICE.search(clause):
            continue
        wrong = _WRONG.search(clause) is not None
        # Wrapped prose has its subject on the line above, a second clause has it in the first.
        whole = clause if not wrong or _CONTEXT.search(clause) else f"{above} {clause}" if text.startswith(clause) else text
        if (
            (wrong or outcome in ("hang", "fail", "slow"))
            and (_CONTEXT.search(whole) or (near and _THIS_HANGS.search(clause)) or (wrong and _MODEL.search(whole)))
            and not clause.lstrip().startswith("[")
        ):
            symptom = "wrong_data" if wrong else "crash" if outcome == "fail" else outcome
            with_p2p = _P2P.search(whole) is not None or (wrong and _BETWEEN_GPUS.search(whole) is not None)
            notes.add(line.number, "symptom", what=symptom, with_p2p=with_p2p, clause=clause.strip(" #")[:160])


def _told(line: Line, notes: pasted.Notes) -> None:
    """Notes what the whole line says of the machine: cards, lanes, peer access, clouds."""
    text = line.text
    low = text.lower()
    for count, name in _COUNTED.findall(text):
        notes.add(line.number, "gpu.mention", count=int(count), name=" ".join(name.split()))
    if _NO_PEER_BUILD.search(text) and _outcome(text) == "ok":
        # llama.cpp built without peer copies is the same experiment as NCCL_P2P_DISABLE=1.
        notes.add(line.number, "outcome", subject="NCCL_P2P_DISABLE", value="1", outcome="ok")
    for sentence in _SENTENCE.split(text):
        lanes = _LANES.search(sentence)
        if lanes and _GPU_NEAR.search(sentence) and not _MAYBE.search(sentence[max(0, lanes.start() - 50) : lanes.end() + 12]):
            notes.add(line.number, "pcie.told", width=int(lanes[1] or lanes[2] or lanes[3]))
    refusal = _REFUSAL.search(text)
    if (refusal or _NO_ACCESS.search(text)) and not _IF.search(text):
        quoted = _REASON.search(refusal.group()) if refusal else None
        notes.add(line.number, "peer.told", access=False, reason=_REASONS[quoted.group()[0].lower()] if quoted else None)
    slower = _P2P_SLOWER.search(text) if mentions(low, ("slower", "faster")) else None
    if slower and not _asked_or_advised(text, slower):
        notes.add(line.number, "p2p.told_slower")
    if _NO_GDR.search(text) and not _IF.search(text):
        notes.add(line.number, "gdr.told", enabled=False)
    for sentence in _SENTENCE.split(text) if mentions(low, ("shm", "ipc", "shared memory")) else ():
        more = _MORE_SHM.search(sentence)
        if more and _outcome(sentence) == "ok" and not _asked_or_advised(sentence, more):
            notes.add(line.number, "shm.cured")
    if _WSL.search(text):
        notes.add(line.number, "wsl.mention")
    for first, second in (*_MIXED.findall(text), *_ADDED.findall(text)):
        if " ".join(first.lower().split()) != " ".join(second.lower().split()):
            notes.add(line.number, "gpu.mix", first=first, second=second)
    backend = _BACKEND.search(text)
    if backend:
        notes.add(line.number, "backend.mention", backend=(backend.group(1) or backend.group(2)).lower())
    cloud = _CLOUD.search(text)
    if cloud:
        notes.add(line.number, "cloud.mention", provider=cloud.group())


def _asked_or_advised(text: str, match: re.Match[str]) -> bool:
    """Whether the sentence around the match asks, supposes or advises instead of telling."""
    before = re.split(r"[.;!?]\s", text[: match.start()])[-1]
    end = re.search(r"[.;!?](?:\s|$)", text[match.end() :])
    return bool(_IF.search(before) or _IF_ADVICE.search(before) or (end is not None and end.group().startswith("?")))


def _boot(line: Line, notes: pasted.Notes, clause: str, outcome: str) -> None:
    """What came of switching the IOMMU or ACS off, or of passing the IOMMU through."""
    for match in _BOOT.finditer(clause):
        state = (match["state"] or "").lower()
        value = (
            "passthrough" if re.search(r"\bpt\b|through", state) else "off" if match["act"] or re.search("off|disabled", state) else None
        )
        if value:
            notes.add(line.number, "outcome", subject="acs" if "acs" in match["what"].lower() else "iommu", value=value, outcome=outcome)


def _is_version(subject: str, version: str, rest: str) -> bool:
    """Whether the number is a version: a driver's branch has three digits, all others have a point, and no unit follows."""
    if re.match(r"\s?(?:[GMKT]i?B|[GM]bps|ms\b|s\b|%|x\b|GPUs?\b)", rest):
        return False
    return re.match(r"[2-9]\d\d(?:\.|$)", version) is not None if subject == "driver" else "." in version


def _iommu(line: Line, notes: pasted.Notes) -> str | None:
    """The state of the IOMMU that the line names."""
    match = _IOMMU.search(line.text)
    if not match:
        return None
    rest = match.group(1).lower()
    state = None
    if re.match(r"\s?=\s?(?:pt|passthrough)|.{0,30}\bpass-?through", rest):
        state = "passthrough"
    elif re.match(r"\s?=\s?off|.{0,20}\b(?:off|disabled)\b", rest):
        state = "off"
    elif re.search(r"\btranslat(?:ed|ing|ion)\b", rest):
        state = "translated"
    elif re.match(r"\s?=\s?on|.{0,20}\b(?:on|enabled)\b", rest):
        state = "on"
    if state:
        notes.add(line.number, "iommu.mention", state=state)
    return state


def _subject(word: str) -> str:
    word = word.lower()
    return "torch" if word == "pytorch" else word


def _outcome_word(text: str) -> str | None:
    return "hang" if _HANGS.search(text) else "fail" if _FAILS.search(text) else "slow" if _SLOW.search(text) else None


def _outcome(clause: str) -> str | None:
    """hang, fail, slow or ok where the clause says exactly one of good and bad; a negated bad word is good."""
    if _NO_CHANGE.search(clause):
        return "no_change"
    if _NOT_CURED.search(clause):
        return _outcome_word(clause) or "no_change"
    if _CURED.search(clause):
        # "the hang is gone", "fixed the crash": the bad word is what was cured.
        return "ok"
    if _GOOD.search(clause):
        return None if _outcome_word(_NOT_BAD.sub("", clause)) else "ok"
    return _outcome_word(clause)
