"""Which columns of a table are learned from: the user's word, or a guess by their names in many languages."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from galley.base import GalleyError

ROLES: dict[str, tuple[str, ...]] = {
    "chat": ("prompt", "completion", "system"),
    "complete": ("text", "prompt", "completion"),
    "classify": ("text", "label"),
}
"""Roles that a column can have, by task."""

_PAIRS = """
question/answer questions/answers question/answers question/response question/reply question/completion
question/output q/a prompt/completion prompt/response prompt/answer prompt/output prompt/reply
instruction/output instruction/response instruction/completion instruction/answer input/output input/target
input/response input/answer inputs/targets query/response query/answer query/reply
context/response user/assistant human/assistant human/gpt human/bot user/bot user/model usermessage/assistantmessage
usermessage/botmessage source/target utterance/response message/reply problem/solution problem/answer task/solution
问题/答案 问题/回答 问题/回复 问题/答复 问句/答句 问/答 提问/回答 提问/答案 用户/助手 用户/机器人 用户/客服 输入/输出
指令/输出 指令/回答 提示/回答 提示词/回答 问題/答案 問題/答案 問題/回答 問/答 提問/回答 用戶/助手 輸入/輸出
frage/antwort fragen/antworten eingabe/ausgabe anweisung/antwort benutzer/assistent pregunta/respuesta
preguntas/respuestas usuario/asistente entrada/salida question/réponse questions/réponses entrée/sortie
utilisateur/assistant domanda/risposta domande/risposte pergunta/resposta perguntas/respostas entrada/saída
usuário/assistente vraag/antwoord вопрос/ответ вопросы/ответы запрос/ответ питання/відповідь pytanie/odpowiedź
質問/回答 質問/答え 入力/出力 質問/解答
질문/답변 질문/대답 입력/출력 soru/cevap soru/yanıt
سؤال/جواب سوال/جواب پرسش/پاسخ
प्रश्न/उत्तर câuhỏi/trảlời câuhỏi/câutrảlời คำถาม/คำตอบ pertanyaan/jawaban fråga/svar spørsmål/svar spørgsmål/svar
kysymys/vastaus otázka/odpověď kérdés/válasz întrebare/răspuns ερώτηση/απάντηση שאלה/תשובה
"""
_SYSTEM = "system systemprompt systemmessage 系统 系统提示 系統"
_TEXT = """
text texts sentence content document body review comment message tweet post email mail article input utterance
question query
文本 内容 句子 评论 文章 文字 正文 邮件 內容 評論 texto texte testo tekst текст テキスト 文 텍스트 내용 metin
"""
_LABEL = """
label labels class classes category categories target sentiment intent tag topic group
标签 类别 分类 类型 情感 意图
標籤 類別 分類 kategorie klasse etiqueta categoría catégorie étiquette categoria etichetta метка класс категория
ラベル カテゴリ 라벨 레이블 분류 etiket sınıf kategori
"""
_DOCUMENT = (
    "text texts document content body article story passage 文本 内容 正文 文章 內容 texto texte testo текст 본문"
)


def simple_name(name: str) -> str:
    """A column's name without case, spaces and punctuation, to compare with known ones."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return "".join(sign for sign in folded if sign.isalnum() or unicodedata.category(sign).startswith("M"))


PAIRS = tuple(dict.fromkeys(tuple(simple_name(side) for side in pair.split("/")) for pair in _PAIRS.split()))
"""Known names of a prompt column and its completion column."""
SYSTEM_NAMES = tuple(map(simple_name, _SYSTEM.split()))
TEXT_NAMES = tuple(map(simple_name, _TEXT.split()))
LABEL_NAMES = tuple(map(simple_name, _LABEL.split()))
DOCUMENT_NAMES = tuple(map(simple_name, _DOCUMENT.split()))


def choose_columns(columns: Sequence[str], explicit: Mapping[str, str], *, task: str, source: str) -> dict[str, str]:
    """Role to column. What the user names is taken; what is left is guessed.

    Args:
        columns: the table's columns.
        explicit: role to column as the user wrote it.
        task: `chat`, `complete` or `classify`.
        source: the table's name, for messages.

    Raises:
        GalleyError: `data-columns` when a named column does not exist, or the guess finds none or several.
    """
    chosen = _checked(columns, explicit, task, source)
    free = [column for column in columns if column not in chosen.values()]
    needed = needed_roles(chosen, free, task)
    if any(role not in chosen for role in needed):
        guesses = guess(free, needed, chosen)
        if len(guesses) != 1:
            raise _unclear(columns, guesses, needed, source)
        chosen |= guesses[0]
    if task == "chat" and "system" not in chosen:
        named = [column for column in free if simple_name(column) in SYSTEM_NAMES and column not in chosen.values()]
        chosen |= {"system": named[0]} if len(named) == 1 else {}
    return chosen


def needed_roles(chosen: Mapping[str, str], free: Sequence[str], task: str) -> tuple[str, ...]:
    """The roles that must be filled. To complete text, a column of documents does unless a prompt is named."""
    if task == "classify":
        return ("text", "label")
    if task == "chat" or "prompt" in chosen or "completion" in chosen:
        return ("prompt", "completion")
    names = {simple_name(column) for column in free}
    documents = names & set(DOCUMENT_NAMES)
    return ("text",) if "text" in chosen or documents or len(free) == 1 else ("prompt", "completion")


def guess(free: Sequence[str], needed: Sequence[str], chosen: Mapping[str, str]) -> list[dict[str, str]]:
    """All ways to fill the roles that are not yet chosen, by known names; one is a sound guess."""
    by_name = {simple_name(column): column for column in free}
    if needed == ("prompt", "completion"):
        if len(chosen.keys() & set(needed)) == 0:
            return _guess_pair(by_name)
        role = "completion" if "prompt" in chosen else "prompt"
        side = needed.index(role)
        found = list(dict.fromkeys(by_name[pair[side]] for pair in PAIRS if pair[side] in by_name))
        return [{role: column} for column in found or (free if len(free) == 1 else [])]
    known = {"text": TEXT_NAMES if "label" in needed else DOCUMENT_NAMES, "label": LABEL_NAMES}
    ways: list[dict[str, str]] = [{}]
    for role in needed:
        if role not in chosen:
            ways = [way | {role: column} for way in ways for column in _by_names(free, by_name, known[role])]
    return [way for way in ways if len(set(way.values())) == len(way)]


def _guess_pair(by_name: Mapping[str, str]) -> list[dict[str, str]]:
    found = [pair for pair in PAIRS if pair[0] in by_name and pair[1] in by_name]
    if not found:  # such as a German question beside an English answer
        prompts = dict.fromkeys(pair[0] for pair in PAIRS if pair[0] in by_name)
        completions = dict.fromkeys(pair[1] for pair in PAIRS if pair[1] in by_name)
        found = [(prompt, completion) for prompt in prompts for completion in completions if prompt != completion]
    return [{"prompt": by_name[prompt], "completion": by_name[completion]} for prompt, completion in found]


def _by_names(free: Sequence[str], by_name: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """Columns with a known name; the plainest name (the first known one) wins over the others."""
    found = [by_name[name] for name in known if name in by_name]
    if found and simple_name(found[0]) == known[0]:
        return found[:1]
    return found or (list(free) if len(free) == 1 else [])


def _checked(columns: Sequence[str], explicit: Mapping[str, str], task: str, source: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for role, wanted in explicit.items():
        if role not in ROLES[task]:
            near = _near(role, ROLES[task])
            raise GalleyError(
                "data-columns",
                f"data.columns: {role!r} is no role of the task {task}",
                hint=f"{f'did you mean {near[0]}? ' if near else ''}roles are {', '.join(ROLES[task])}",
            )
        match = next(
            (c for c in columns if c == wanted), next((c for c in columns if c.strip() == wanted.strip()), None)
        )
        if match is None:
            near = _near(wanted, columns)
            raise GalleyError(
                "data-columns",
                f"{source}: there is no column {wanted!r} (for {role}); it has {_listed(columns)}",
                hint=f"did you mean {near[0]!r}?" if near else "columns are written as they stand in the file",
            )
        chosen[role] = match
    return chosen


def _near(word: str, names: Sequence[str]) -> list[str]:
    """The one name that a slip of the hand would turn into the word, or none."""
    import difflib

    return difflib.get_close_matches(word, names, n=1)


def _unclear(
    columns: Sequence[str], guesses: Sequence[Mapping[str, str]], needed: Sequence[str], source: str
) -> GalleyError:
    if guesses:
        ways = "; or ".join(", ".join(f"{role}: {column}" for role, column in way.items()) for way in guesses[:4])
        fault = f"several columns could be meant ({ways})"
    else:
        fault = f"no columns are recognised as {' and '.join(needed)}"
    example = guesses[0] if guesses else dict(zip(needed, [*columns, "..."], strict=False))
    written = ", ".join(f"{role}: {column}" for role, column in example.items())
    return GalleyError(
        "data-columns",
        f"{source}: {fault}; it has {_listed(columns)}",
        hint=f"say which: `data: {{path: {source}, columns: {{{written}}}}}`; "
        "if the first row is no header, add `options: {header: false}`",
    )


def _listed(columns: Sequence[str]) -> str:
    names = ", ".join(map(repr, columns[:30]))
    return f"the columns {names}{' ...' if len(columns) > 30 else ''}" if columns else "no columns"
