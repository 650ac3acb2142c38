"""An engine's output: cut into lines, and its last words found. The samples are vLLM 0.32's own."""

from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.engine.output import KEPT_LINES, OutputLines, last_words

FRAMES = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/e/lib/python3.11/site-packages/vllm/engine/arg_utils.py", line 2203, in create_engine_config
    config = VllmConfig(
             ^^^^^^^^^^^
"""
NEEDS_SPECULATION = (
    FRAMES
    + """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig
  Value error, --per-request-spec-decode-metrics requires speculative decoding [type=value_error]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
)
TOO_SMALL = (
    FRAMES
    + """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig
max_num_batched_tokens
  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=-5]
    For further information visit https://errors.pydantic.dev/2.14/v/greater_than_equal
"""
)
UNKNOWN_FLAG = """\
usage: api_server.py [-h] [--headless]
                     [--api-server-count API_SERVER_COUNT]
api_server.py: error: unrecognized arguments: --no-such-flag
"""
IN_THE_CORE = """\
(EngineCore pid=7) INFO 11-20 08:05:08 [core.py:99] Initializing a V1 LLM engine
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023]   File "/e/vllm/v1/engine/core.py", line 1014, in run
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023]     engine_core = EngineCoreProc(*args)
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023]                   ^^^^^^^^^^^^^^
(EngineCore pid=7) ERROR 11-20 08:05:08 [core.py:1023] ValueError: no weights for mask_hidden
(EngineCore pid=7) ValueError: no weights for mask_hidden
(APIServer pid=5) Traceback (most recent call last):
(APIServer pid=5)   File "/e/vllm/v1/engine/utils.py", line 1, in wait
(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.
"""
CORE_KILLED = """\
(APIServer pid=5) WARNING 11-20 08:05:12 [core_client.py:817] [shutdown] MPClient: engine core exited
(APIServer pid=5) ERROR 11-20 08:05:12 [async_llm.py:7] AsyncLLM output_handler failed.
(APIServer pid=5) ERROR 11-20 08:05:12 [async_llm.py:7] Traceback (most recent call last):
(APIServer pid=5) ERROR 11-20 08:05:12 [async_llm.py:7] vllm.EngineDeadError: EngineCore encountered an issue.
INFO:     Application shutdown complete.
"""


def words(output: str) -> list[str]:
    return last_words(output.splitlines()).splitlines()


def test_a_refused_option_is_told_with_its_reason() -> None:
    assert words(NEEDS_SPECULATION) == [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        "  Value error, --per-request-spec-decode-metrics requires speculative decoding [type=value_error]",
    ]


def test_a_refused_value_is_told_with_its_name() -> None:
    assert words(TOO_SMALL)[1:] == [
        "max_num_batched_tokens",
        "  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=-5]",
    ]


def test_an_unknown_flag() -> None:
    assert words(UNKNOWN_FLAG) == ["api_server.py: error: unrecognized arguments: --no-such-flag"]


def test_a_cause_is_told_once_and_what_it_led_to_is_not() -> None:
    assert words(IN_THE_CORE) == ["EngineCore failed to start.", "ValueError: no weights for mask_hidden"]


def test_when_there_is_no_better_cause_the_poor_one_is_told() -> None:
    assert words(CORE_KILLED)[-1] == "vllm.EngineDeadError: EngineCore encountered an issue."


def test_without_any_error_the_last_lines_are_told() -> None:
    lines = [f"INFO line {number}" for number in range(40)]
    assert last_words(lines, 3) == "INFO line 37\nINFO line 38\nINFO line 39"


def test_a_killed_engine_s_healthy_start_is_no_cause() -> None:
    routes = [
        "INFO Available routes are:",
        "INFO Route: /ping, Methods: GET",
        "INFO Application startup complete.",
    ]
    expected = "killed by a signal (SIGKILL); the engine itself reported no error"
    assert last_words(routes, killed_by="SIGKILL") == expected
    assert last_words([*routes, "ValueError: too big"], killed_by="SIGABRT") == "ValueError: too big"


def test_a_line_as_long_as_a_page_is_cut() -> None:
    assert len(last_words([f"ValueError: {'x' * 5000}"])) < 500


def _access(path: str, status: str) -> str:
    return f'(APIServer pid=5) INFO:     127.0.0.1:37898 - "GET {path} HTTP/1.1" {status}'


ROUTINE = [_access("/ping", "200 OK"), _access("/metrics", "200 OK"), _access("/ping", "200 OK")[18:]]
TELLING = [
    _access("/ping", "503 Service Unavailable"),
    _access("/metrics", "500 Internal Server Error"),
    _access("/v1/models", "200 OK"),
    _access("/pingpong", "200 OK"),
    '(APIServer pid=5) INFO:     127.0.0.1:37898 - "POST /invocations HTTP/1.1" 200 OK',
    'a prompt with "GET /ping HTTP/1.1" 200 OK in it',
]


def test_answered_health_checks_and_scrapes_are_not_handed_on() -> None:
    lines: list[str] = []
    output = OutputLines(lines.append)
    output.feed("\n".join([*ROUTINE, *TELLING, *ROUTINE]).encode())
    output.close()
    assert lines == TELLING
    assert list(output.lines) == TELLING


def test_health_checks_are_no_last_words() -> None:
    failed = _access("/ping", "503 Service Unavailable")
    assert last_words(["INFO loading", *ROUTINE, failed] * 9, 3) == "INFO loading\nINFO loading\nINFO loading"
    assert last_words([failed, *ROUTINE]) == ""


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_do_not_depend_on_how_the_bytes_arrive(chunks: list[bytes]) -> None:
    whole: list[str] = []
    parts: list[str] = []
    at_once, bit_by_bit = OutputLines(whole.append), OutputLines(parts.append)
    at_once.feed(b"".join(chunks))
    for chunk in chunks:
        bit_by_bit.feed(chunk)
    at_once.close()
    bit_by_bit.close()
    assert whole == parts


def test_a_progress_bar_is_one_line_and_bytes_that_are_no_text_do_no_harm() -> None:
    lines: list[str] = []
    output = OutputLines(lines.append)
    output.feed(b"0%\r50%\r100%\r\n\xff\xfe\nlast")
    assert lines == ["100%", "\ufffd\ufffd"]
    output.close()
    assert lines[-1] == "last"


def test_output_without_end_does_not_fill_the_memory() -> None:
    output = OutputLines(lambda line: None)
    output.feed(b"x" * 1_000_000)
    output.feed(b"y\n" * 5000)
    assert len(output.lines) == KEPT_LINES
