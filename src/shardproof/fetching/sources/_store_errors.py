"""What the clients of object stores raise, as an error that says what to do.

s3fs, gcsfs and adlfs have errors of their own, with the store's code somewhere in the chain. They
ask again by themselves, and wait as they see fit: what comes here was tried several times.
"""

import contextlib
from collections.abc import Iterator

from shardproof._base.messages import said, traced, with_kind
from shardproof.errors import SourceError, SourceErrorKind
from shardproof.fetching.sources._http import seconds_to_wait

_MOST_LINKS = 20  # of a chain of errors
_THROTTLED = "SlowDown ServerBusy 429 503"
_ADVICE = {
    "NoCredentialsError PartialCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " or AWS_PROFILE, or run `aws configure`; for a public bucket, set FSSPEC_S3_ANON=true",
    "DefaultCredentialsError": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth "
    "application-default login`; for a public bucket, set FSSPEC_GS_TOKEN=anon",
    "ExpiredToken RefreshError SSOTokenLoadError TokenRetrievalError UnauthorizedSSOTokenError": (
        "the credentials have expired: log in again, as with `aws sso login`"
    ),
    "InvalidAccessKeyId SignatureDoesNotMatch": "check the key, and AWS_ENDPOINT_URL",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it, as by NTP",
    "AuthorizationHeaderMalformed 301": "the bucket is in another region: set AWS_DEFAULT_REGION",
    "NoSuchBucket ContainerNotFound InvalidBucketName": "check the bucket's name, and "
    "AWS_ENDPOINT_URL if the store is not Amazon's",
    "requester-pays": "the requester pays: set FSSPEC_GS_REQUESTER_PAYS=<project>",
    "PreconditionFailed": "it has changed since it was listed: wait for its writer",
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
    except (SourceError, FileExistsError):
        raise
    except Exception as error:
        signs, wait = _signs_of(error)
        words = next((each for each in _ADVICE if not signs.isdisjoint(each.split())), None)
        if words is None:
            raise
        kind: SourceErrorKind = "broken" if words is _THROTTLED else "refused"
        problem = f"{with_kind(error)}: {_ADVICE[words]}"
        seconds = seconds_to_wait(wait) if words is _THROTTLED else None
        raise SourceError(problem, kind=kind, retry_after=seconds) from traced(error)


def _signs_of(error: BaseException) -> tuple[set[str], str | None]:
    """Return what tells one error from another: classes, statuses, codes; and how long to wait."""
    signs, wait, link = set[str](), None, error
    for _ in range(_MOST_LINKS):
        about = (getattr(link, name, "") for name in ("code", "status_code", "error_code"))
        signs |= {type(link).__name__, *map(str, about)}  # of gcsfs, of Azure
        signs |= {"403"} if said(link).startswith("Forbidden:") else set()  # gcsfs, and below
        signs |= {"requester-pays"} if "requester pays" in said(link).lower() else set()
        response = getattr(link, "response", None)
        if isinstance(response, dict):  # botocore
            answer = response.get("ResponseMetadata", {})
            signs |= {str(response.get("Error", {}).get("Code")), str(answer.get("HTTPStatusCode"))}
            wait = wait or answer.get("HTTPHeaders", {}).get("retry-after")
        if (cause := link.__cause__ or link.__context__) is None:
            break
        link = cause
    return signs, wait
