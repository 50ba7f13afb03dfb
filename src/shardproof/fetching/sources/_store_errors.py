"""What the clients of object stores raise, as an error that says what to do.

s3fs, gcsfs and adlfs have errors of their own, with the store's code somewhere in the chain. They
ask again by themselves, and wait as they see fit: what comes here was tried several times.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from shardproof._base.messages import said, traced, with_kind
from shardproof.errors import SourceError, SourceErrorKind
from shardproof.fetching.sources._http import seconds_to_wait

_THROTTLED = "SlowDown ServerBusy 429 503"
_ADVICE = {
    "NoCredentialsError PartialCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " or AWS_PROFILE, or run `aws configure`; for a public bucket, set FSSPEC_S3_ANON=true",
    "DefaultCredentialsError": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth "
    "application-default login`; for a public bucket, set FSSPEC_GS_TOKEN=anon",
    "ExpiredToken RefreshError SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError": (
        "the credentials have expired: log in again, as with `aws sso login`"
    ),
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it, as by NTP",
    "InvalidAccessKeyId SignatureDoesNotMatch": "these are not credentials of this store: check "
    "the key, and AWS_ENDPOINT_URL",
    "AuthorizationHeaderMalformed 301": "the bucket is in another region: set AWS_DEFAULT_REGION",
    "NoSuchBucket ContainerNotFound InvalidBucketName": "check the bucket's name, and "
    "AWS_ENDPOINT_URL if the store is not Amazon's",
    "requester-pays": "the requester pays: set FSSPEC_GS_REQUESTER_PAYS=<project>",
    _THROTTLED: "the store throttles: ask less at once (--workers), or later",
    "400": "the credentials may have expired, or the bucket be in another region",
    "AccessDenied 401 403": "credentials are missing, wrong or not enough; to list and to read are "
    "two rights. If the requester pays for the bucket, set FSSPEC_S3_REQUESTER_PAYS=true",
}
"""What to do about an answer; words of `_signs_of` tell which it is, the more specific first."""


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """Raise an error with advice for what the client of a store raises; all else as it is."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        signs = {*_signs_of(error)}
        words = next((each for each in _ADVICE if not signs.isdisjoint(each.split())), None)
        if words is None:
            raise
        kind: SourceErrorKind = "broken" if words is _THROTTLED else "refused"
        wait = _said_by_s3(error).get("HTTPHeaders", {}).get("retry-after")
        problem = f"{with_kind(error)}: {_ADVICE[words]}"
        seconds = seconds_to_wait(wait) if words is _THROTTLED else None
        raise SourceError(problem, kind=kind, retry_after=seconds) from traced(error)


def _signs_of(error: BaseException) -> Iterator[str]:
    """Yield what tells one error from another: classes, statuses, the store's codes."""
    for each in _chain(error):
        yield type(each).__name__
        for name in ("code", "status_code", "error_code"):  # of gcsfs, of Azure
            yield str(getattr(each, name, ""))
        if said(each).startswith("Forbidden:"):  # gcsfs, of 403
            yield "403"
        if "requester pays" in said(each).lower():  # gcsfs
            yield "requester-pays"
        response = getattr(each, "response", None)
        if isinstance(response, dict):  # botocore
            yield str(response.get("Error", {}).get("Code"))
    yield str(_said_by_s3(error).get("HTTPStatusCode"))


def _said_by_s3(error: BaseException) -> Mapping[str, Any]:
    responses = (getattr(each, "response", None) for each in _chain(error))
    found = next((each for each in responses if isinstance(each, dict)), {})
    about: Mapping[str, Any] = found.get("ResponseMetadata", {})
    return about


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen = list[BaseException]()
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
