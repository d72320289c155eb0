"""One tree of errors. Each says what was expected, what was found and what to do.

SlipstreamError
├── InputError (exit 2, HTTP 4xx): the request or a file is at fault
│   ├── ModelFileError      a model file is malformed, truncated or hostile
│   ├── UnsupportedError    a valid file or request uses something Slipstream does not run
│   ├── TokenizerError      the vocabulary or pre-tokeniser cannot be built
│   ├── TemplateError       the chat template is absent, invalid or refused its input
│   ├── PairingError        target and draft model do not fit each other
│   ├── OptionError         an option, flag or key is unknown or out of range
│   ├── RequestError        a request is malformed
│   ├── ContextFullError    the prompt leaves no room to generate
│   ├── TraceError          a trace is malformed, truncated or of another version
│   └── GrammarError        a grammar or schema cannot be compiled
└── OperationError (exit 1, HTTP 5xx): the environment failed
    ├── DownloadError       a file could not be fetched or failed its digest
    ├── OutOfMemoryError    a planned allocation does not fit
    ├── BackendError        a backend could not be loaded or failed
    ├── OverloadedError     the queue is full (HTTP 429)
    ├── UnavailableError    the server is stopping (HTTP 503)
    ├── DeadlineError       a deadline passed (HTTP 504)
    └── PeerRuntimeError    a program under measurement failed
"""

from __future__ import annotations

from typing import ClassVar


class SlipstreamError(Exception):
    """Base of all errors a user can meet.

    Args:
        expected: what the code needed, in the user's terms.
        found: what it met instead.
        remedy: what the user can do about it.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, expected: str, found: str, remedy: str) -> None:
        super().__init__(expected, found, remedy)
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        return f"expected {self.expected}; found {self.found}. {self.remedy}"


class InputError(SlipstreamError):
    exit_code = 2
    http_status = 400


class ModelFileError(InputError):
    pass


class UnsupportedError(InputError):
    http_status = 422


class TokenizerError(InputError):
    pass


class TemplateError(InputError):
    pass


class PairingError(InputError):
    pass


class OptionError(InputError):
    pass


class RequestError(InputError):
    pass


class ContextFullError(InputError):
    http_status = 413


class GrammarError(InputError):
    pass


class TraceError(InputError):
    pass


class OperationError(SlipstreamError):
    pass


class DownloadError(OperationError):
    http_status = 502


class OutOfMemoryError(OperationError):
    http_status = 503


class BackendError(OperationError):
    pass


class OverloadedError(OperationError):
    http_status = 429


class UnavailableError(OperationError):
    http_status = 503


class DeadlineError(OperationError):
    http_status = 504


class PeerRuntimeError(OperationError):
    http_status = 502
