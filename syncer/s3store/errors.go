package s3store

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/sluice-dev/sluice/schemas"
)

// coded adds to an error of the SDK the code that a store's error must have. An error that is not known to be final is
// unavailable, so it is retried.
func coded(ctx context.Context, err error, key string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the caller's deadline; a slow server is unavailable
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "s3: %q: %w", key, &cause{err})
	}
	status, name, region := 0, "", ""
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = r.HTTPStatusCode()
		if r.Response != nil {
			region = r.Response.Header.Get("X-Amz-Bucket-Region")
		}
	}
	if a, ok := errors.AsType[smithy.APIError](err); ok {
		name = a.ErrorCode()
	}
	code := codeOf(status, name, err)
	return schemas.Errorf(code, "s3: %s%q: %w", advice(code, name, status, region), key, &cause{err})
}

// cause is an error of the SDK. Its text is the innermost reason, without the SDK's names of operations and layers.
type cause struct{ error }

// Unwrap returns the error of the SDK.
func (c *cause) Unwrap() error { return c.error }

// Error returns the server's code and message, or the reason why there was no answer.
func (c *cause) Error() string {
	if a, ok := errors.AsType[smithy.APIError](c.error); ok {
		if text := a.ErrorMessage(); text != "" && text != a.ErrorCode() {
			return a.ErrorCode() + ": " + text
		}
		return a.ErrorCode()
	}
	if _, ok := errors.AsType[*credentialsError](c.error); ok {
		return "there are none, or they could not be read"
	}
	if op, ok := errors.AsType[*net.OpError](c.error); ok {
		return op.Error()
	}
	if u, ok := errors.AsType[*url.Error](c.error); ok {
		return u.Err.Error()
	}
	err := c.error
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// advice returns the way out for errors that do not concern one object. region is the one that the server names, "" for none.
func advice(code schemas.Code, name string, status int, region string) string {
	switch {
	case wrongRegion(status, name) && region != "":
		return "wrong region: the bucket is in " + strconv.Quote(region) + ", set --region or AWS_REGION to it: "
	case wrongRegion(status, name):
		return "wrong region or endpoint: set --region or AWS_REGION to the bucket's: "
	case name == "RequestTimeTooSkewed":
		return "the clock of this machine differs from the server's: set it: "
	case name == "NoSuchBucket":
		return "no such bucket: create it, or check its name, the region and the endpoint: "
	case code == schemas.CodeUnauthenticated:
		return "check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile): "
	case status == http.StatusBadRequest && (name == "" || name == "BadRequest"): // to a HEAD, which has no body
		return "the server gives no reason: check the region (--region, AWS_REGION) and the endpoint: "
	case status == http.StatusForbidden && (name == "" || name == "Forbidden"):
		return "the server gives no reason: check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile), and what they permit: "
	case code == schemas.CodeUnavailable && status == 0:
		return "the server does not respond: check the endpoint: "
	}
	return ""
}

// wrongRegion reports whether the server refused a request because the bucket is elsewhere. A request without a body in its response
// has a status alone.
func wrongRegion(status int, name string) bool {
	switch name {
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "TemporaryRedirect":
		return true
	}
	return status >= 300 && status < 400 && status != http.StatusNotModified
}

func codeOf(status int, name string, err error) schemas.Code {
	if wrongRegion(status, name) {
		return schemas.CodeInvalidArgument
	}
	switch name {
	case "NoSuchKey", "NotFound", "NoSuchUpload":
		return schemas.CodeNotFound
	case "NoSuchBucket": // not_found would mean an empty workspace
		return schemas.CodeInvalidArgument
	case "PreconditionFailed", "ConditionalRequestConflict":
		return schemas.CodeConflict
	case "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed":
		return schemas.CodeUnauthenticated
	case "AccessDenied", "AllAccessDisabled":
		return schemas.CodePermissionDenied
	case "EntityTooLarge":
		return schemas.CodeTooLarge
	case "InvalidRange": // ranges are those of what was stored
		return schemas.CodeDamaged
	case "QuotaExceeded":
		return schemas.CodeLimitExceeded
	case "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "BadDigest", "IncompleteBody",
		"XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest":
		return schemas.CodeUnavailable
	}
	switch status {
	case http.StatusNotFound:
		if name != "" { // something other than the object is missing
			return schemas.CodeInvalidArgument
		}
		return schemas.CodeNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return schemas.CodeConflict
	case http.StatusUnauthorized:
		return schemas.CodeUnauthenticated
	case http.StatusForbidden:
		return schemas.CodePermissionDenied
	case http.StatusRequestEntityTooLarge:
		return schemas.CodeTooLarge
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return schemas.CodeUnavailable
	}
	if status >= 400 && status < 500 || status == http.StatusNotImplemented {
		return schemas.CodeInvalidArgument
	}
	if _, ok := errors.AsType[*credentialsError](err); ok {
		return schemas.CodeUnauthenticated
	}
	return schemas.CodeUnavailable
}

// credentialsError means that a request was not sent because there are no credentials to sign it.
type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }

// credentials marks the errors of a provider, for which the SDK has no type.
type credentials struct{ aws.CredentialsProvider }

// Retrieve implements [aws.CredentialsProvider].
func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := c.CredentialsProvider.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		err = &credentialsError{err}
	}
	return found, err
}

// folderTries is how often an object is sent to a store that keeps objects in folders and removes the folder meanwhile.
const folderTries = 4

// throughFolderRaces sends the request that gives an object its name, again while it meets a folder race.
func throughFolderRaces(request func() error) error {
	for try := 1; ; try++ {
		if err := request(); try == folderTries || !isFolderRace(err) {
			return err
		}
	}
}

// isFolderRace reports whether a store refused an object with the code by which versitygw (1.8) also says that another request has removed
// the object's folder, with the last object in it, while this one made it. Nothing is stored then.
func isFolderRace(err error) bool {
	e, ok := errors.AsType[smithy.APIError](err)
	return ok && e.ErrorCode() == "ExistingObjectIsDirectory"
}
