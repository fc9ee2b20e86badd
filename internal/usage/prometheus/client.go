// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	// maxWords limits the text of Prometheus in errors and warnings.
	maxWords = 300
	// maxSecret is the largest accepted credential file, in bytes.
	maxSecret = 64 << 10

	unreadable = "the operator cannot read its credentials"
)

var (
	errTooLong       = errors.New("the response is longer than allowed")
	errRedirect      = errors.New("the server redirects, and redirects are not followed")
	errNotPrometheus = errors.New("the response is not from Prometheus")
)

// Error is the reason why nothing could be read, for the log and for users.
type Error struct {
	// Words is a stable text for conditions.
	Words string
	// Unavailable is true if other queries would fail as well.
	Unavailable bool
	// Unauthorized is true if the credentials are missing or rejected.
	Unauthorized bool
	// Err is the full error.
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// client queries Prometheus: it adds credentials, rejects redirects, which could leak them, and bounds responses. Each
// range creates its own client, so that rotated files are read again. It is not safe for concurrent use.
type client struct {
	options Options
	api     v1.API
	next    http.RoundTripper
	status  int // of the last response
	close   func()
}

// open reads the TLS files and returns a client. An error is an *Error.
func (s *Source) open() (*client, error) {
	t, err := s.tls()
	if err != nil {
		return nil, &Error{Words: unreadable, Unavailable: true, Err: err}
	}
	transport := &http.Transport{
		// No proxy: a proxy from the environment would see the credentials.
		TLSClientConfig:        t,
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true, // It takes more of Prometheus's processor time than the rest of a query.
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        2,
		MaxResponseHeaderBytes: 64 << 10,
	}
	c := &client{options: s.options, next: transport, close: transport.CloseIdleConnections}
	if s.options.Transport != nil {
		c.next = s.options.Transport
	}
	sender, err := api.NewClient(api.Config{Address: s.options.Address, RoundTripper: c})
	if err != nil {
		return nil, &Error{Words: unreadable, Unavailable: true, Err: fmt.Errorf("creating the client: %w", err)}
	}
	c.api = v1.NewAPI(sender)
	return c, nil
}

// tls reads the TLS files.
func (s *Source) tls() (*tls.Config, error) {
	o := s.options
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := secret(o.CAFile, 16*maxSecret)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("file %s contains no certificate", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// matrix sends a query for a time range.
func (c *client) matrix(ctx context.Context, query string, r v1.Range) (model.Matrix, v1.Warnings, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	c.status = 0
	value, warnings, err := c.api.QueryRange(ctx, query, r, c.serverTimeout())
	matrix, ok := value.(model.Matrix)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the result is a %T, not a matrix", errNotPrometheus, value)
	}
	return matrix, warnings, err
}

// vector sends a query for one moment.
func (c *client) vector(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	c.status = 0
	value, _, err := c.api.Query(ctx, query, at, c.serverTimeout())
	vector, ok := value.(model.Vector)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the result is a %T, not a vector", errNotPrometheus, value)
	}
	return vector, err
}

// pair sends a query for CPU and one for memory.
func (c *client) pair(ctx context.Context, queries [2]string, r v1.Range) (answers [2]model.Matrix, warnings v1.Warnings, err error) {
	for i, query := range queries {
		var more v1.Warnings
		if answers[i], more, err = c.matrix(ctx, query, r); err != nil {
			return answers, nil, err
		}
		warnings = append(warnings, more...)
	}
	return answers, warnings, nil
}

// serverTimeout also ends the server's work, and comes first. Prometheus accepts whole seconds only.
func (c *client) serverTimeout() v1.Option {
	return v1.WithTimeout(max((c.options.Timeout * 9 / 10).Truncate(time.Second), time.Second))
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	if err := c.authenticate(request); err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close())
		}
		return nil, err
	}
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	c.status = response.StatusCode
	if response.StatusCode/100 == 3 {
		_ = response.Body.Close() // the body is not read
		return nil, errRedirect
	}
	response.Body = http.MaxBytesReader(nil, response.Body, c.options.MaxBytes)
	return response, nil
}

func (c *client) authenticate(request *http.Request) error {
	switch o := c.options; {
	case o.BearerTokenFile != "":
		token, err := secret(o.BearerTokenFile, maxSecret)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+string(token))
	case o.PasswordFile != "":
		password, err := secret(o.PasswordFile, maxSecret)
		if err != nil {
			return err
		}
		request.SetBasicAuth(o.Username, string(password))
	}
	return nil
}

// errSecret is the error for a credential or certificate file that cannot be used.
var errSecret = errors.New("reading a certificate or credential")

// secret reads a file and trims whitespace. Errors never contain its content.
func secret(path string, most int64) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the administrator's
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSecret, err)
	}
	defer f.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSecret, err)
	}
	content = bytes.TrimSpace(content)
	if len(content) == 0 || int64(len(content)) > most {
		return nil, fmt.Errorf("%w: %s is empty or too long", errSecret, path)
	}
	return content, nil
}

// isTooLong reports whether a query for less time may succeed.
func isTooLong(err error) bool {
	var apiErr *v1.Error
	return errors.As(err, new(*http.MaxBytesError)) || errors.As(err, &apiErr) &&
		(isServerTimeout(apiErr) || apiErr.Type == v1.ErrExec && strings.Contains(apiErr.Msg, "too many samples"))
}

// isServerTimeout reports whether Prometheus ended the query because of its timeout.
func isServerTimeout(e *v1.Error) bool {
	return e.Type == v1.ErrTimeout || bodyOf(e).Type == v1.ErrTimeout
}

// explain describes why the last query failed.
func (c *client) explain(err error) error {
	out := &Error{Unavailable: true, Err: err}
	var apiErr *v1.Error
	isAPIErr := errors.As(err, &apiErr)
	if isAPIErr {
		out.Err = fmt.Errorf("%s (HTTP status %d): %s", apiErr.Type, c.status, wordsOf(apiErr))
	}
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		out.Words, out.Unavailable, out.Err = "the responses are too large", false, errTooLong
	case errors.Is(err, errSecret):
		out.Words = unreadable
	case errors.Is(err, errRedirect):
		out.Words = "the server redirects; redirects are not followed"
	case errors.Is(err, context.DeadlineExceeded) || isAPIErr && isServerTimeout(apiErr):
		out.Words = "the query timed out"
	case isTooLong(err):
		out.Words, out.Unavailable = "the responses are too large", false
	case c.status == http.StatusUnauthorized || c.status == http.StatusForbidden:
		out.Words, out.Unauthorized = "the server rejects the operator's credentials", true
	case isAPIErr && (apiErr.Type == v1.ErrBadData || apiErr.Type == v1.ErrExec):
		out.Words, out.Unavailable = "the server rejects the query", false
	case c.status == 0:
		out.Words = "the server cannot be reached"
	case c.status/100 == 2:
		out.Words = "the response is not from Prometheus"
		out.Err = fmt.Errorf("%w: %s", errNotPrometheus, printable(err.Error()))
	default:
		out.Words = "the server responds with errors"
	}
	return out
}

// wordsOf is Prometheus's own error text. The text of a proxy stays out of the log, because it may
// repeat the request.
func wordsOf(e *v1.Error) string {
	if text := bodyOf(e).Error; text != "" {
		return printable(text)
	}
	return printable(e.Msg)
}

// body is the body of Prometheus's responses with statuses other than 400 and 422.
type body struct {
	Type  v1.ErrorType `json:"errorType"`
	Error string       `json:"error"`
}

func bodyOf(e *v1.Error) (b body) {
	if json.Unmarshal([]byte(e.Detail), &b) != nil {
		return body{}
	}
	return b
}

// printable shortens a text to one printable line.
func printable(words string) string {
	words = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(words, "?"))
	if len(words) > maxWords {
		words = strings.ToValidUTF8(words[:maxWords], "") + "..."
	}
	return words
}
