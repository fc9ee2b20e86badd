// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
)

// tokenBytes is the length of a token before it is encoded.
const tokenBytes = 32

// NewToken returns a random secret that fits into a path.
func NewToken() string {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// headers are the headers of every response. Nothing is loaded from elsewhere or kept on disk, and no
// other page can embed or read one of ours. The address has the token in it, so it is never passed on.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// ServeHTTP answers requests that read, from this machine, by its own name, and with the token.
// Only the style sheet and the script need no token: they are the same for everybody.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	token, rest, hasRest := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case !isLoopback(r.Host):
		// A foreign name that resolves to this machine: its pages must not be able to read ours.
		s.refuse(w, http.StatusForbidden, "This is not the dashboard's address", "Open the address that the command printed.", false)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		s.refuse(w, http.StatusMethodNotAllowed, "The dashboard only reads", "Nothing can be changed here.", false)
	case token == "assets":
		s.asset(w, rest)
	case !s.isToken(token):
		s.refuse(w, http.StatusUnauthorized, "This link is not valid",
			"It is from a dashboard that was stopped, or is incomplete. Run kubectl vscaler dashboard, and open the address that it prints.", false)
	case !s.Clock.Now().Before(s.Expires):
		s.refuse(w, http.StatusUnauthorized, "This link has expired",
			"Stop the command with Ctrl-C, run kubectl vscaler dashboard again, and open the address that it prints.", false)
	case !hasRest:
		http.Redirect(w, r, s.base(), http.StatusFound)
	default:
		inside := r.Clone(r.Context())
		inside.URL.Path, inside.URL.RawPath = "/"+rest, strings.TrimPrefix(r.URL.EscapedPath(), "/"+token)
		s.inside.ServeHTTP(w, inside)
	}
}

// isToken compares in a time that does not depend on where they differ.
func (s *Server) isToken(token string) bool {
	return s.Token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) == 1
}

// isLoopback is true if a Host header names this machine. Any port will do, as a tunnel has its
// own.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}
