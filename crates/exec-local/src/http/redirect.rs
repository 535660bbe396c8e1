//! Redirections: how a response turns a request into the next one. Pure.
//!
//! The rules are those of browsers. Their order is that of Codex's server, because it determines the order of the
//! headers. Deliberately absent: counting redirections, which the sender does.

use bytes::Bytes;
use exec_env::http::HttpError;
use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, PROXY_AUTHORIZATION, REFERER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use reqwest::{Method, StatusCode, Url};

/// Headers that describe a body.
const BODY_HEADERS: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING];

/// Headers that are meant for one host only.
const CREDENTIAL_HEADERS: [HeaderName; 5] =
    [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE, HeaderName::from_static("cookie2")];

/// The request that is sent next.
#[derive(Debug, Clone)]
pub(super) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

impl OutgoingRequest {
    /// Turns it into the request that the response redirects to. Returns false if the response is not a redirection
    /// that can be followed.
    pub(super) fn redirect(&mut self, status: StatusCode, response: &HeaderMap) -> Result<bool, HttpError> {
        let keeps_body = match status.as_u16() {
            301 | 302 => self.method != Method::POST,
            303 => false,
            307 | 308 => true,
            _ => return Ok(false),
        };
        let location = response.get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(next) = location.and_then(|location| self.url.join(location).ok()) else { return Ok(false) };
        if !matches!(next.scheme(), "http" | "https") {
            return Err(HttpError::RedirectedTo { scheme: next.scheme().to_owned() });
        }
        if !keeps_body {
            if self.method != Method::HEAD {
                self.method = Method::GET;
            }
            self.body = None;
            BODY_HEADERS.iter().for_each(|name| drop(self.headers.remove(name)));
        }
        let same_origin = self.url.origin() == next.origin();
        if !same_origin {
            CREDENTIAL_HEADERS.iter().for_each(|name| drop(self.headers.remove(name)));
            // What was filled from a variable is a secret, whatever the header is called. Only such values are marked.
            let secret = self.headers.iter().filter(|(_, value)| value.is_sensitive()).map(|(name, _)| name.clone());
            secret.collect::<Vec<HeaderName>>().iter().for_each(|name| drop(self.headers.remove(name)));
        }
        self.headers.remove(REFERER);
        if let Some(referer) = referer(&self.url, &next, same_origin) {
            self.headers.insert(REFERER, referer);
        }
        self.url = next;
        Ok(true)
    }
}

/// The whole URL for the same origin, the origin for others, nothing from HTTPS to HTTP.
fn referer(from: &Url, to: &Url, same_origin: bool) -> Option<HeaderValue> {
    if from.scheme() == "https" && to.scheme() == "http" {
        return None;
    }
    let mut referer = from.clone();
    // These fail only for URLs without a host, and a request was sent to this one.
    let _ = referer.set_username("");
    let _ = referer.set_password(None);
    referer.set_fragment(None);
    if !same_origin {
        referer.set_path("/");
        referer.set_query(None);
    }
    referer.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(method: Method, headers: &[(HeaderName, &'static str)]) -> OutgoingRequest {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let url = Url::parse("http://u:p@one.invalid/a?b#c").expect("a URL");
        OutgoingRequest { method, url, headers: headers.collect(), body: Some(Bytes::from_static(b"body")) }
    }

    fn sent_to(outgoing: &mut OutgoingRequest, status: u16, location: &'static str) -> Result<bool, HttpError> {
        let response = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
        outgoing.redirect(StatusCode::from_u16(status).expect("a status"), &response)
    }

    #[test]
    fn a_form_becomes_a_question_and_loses_what_described_its_body() {
        let mut form = outgoing(Method::POST, &[(CONTENT_TYPE, "text/plain"), (AUTHORIZATION, "s")]);
        assert_eq!(sent_to(&mut form, 302, "/x"), Ok(true));
        assert_eq!((form.method.as_str(), form.url.as_str(), &form.body), ("GET", "http://u:p@one.invalid/x", &None));
        let names: Vec<&str> = form.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["authorization", "referer"]);
        assert_eq!(form.headers[REFERER], "http://one.invalid/a?b");
    }

    #[test]
    fn see_other_is_asked_without_a_body_by_every_method() {
        for (method, next) in [("GET", "GET"), ("HEAD", "HEAD"), ("PUT", "GET")] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let mut request = outgoing(method, &[(CONTENT_TYPE, "text/plain")]);
            assert_eq!(sent_to(&mut request, 303, "/x"), Ok(true));
            let described = request.headers.contains_key(CONTENT_TYPE);
            assert_eq!((request.method.as_str(), &request.body, described), (next, &None, false));
        }
    }

    #[test]
    fn another_host_learns_no_secrets_and_only_the_origin() {
        let mut form = outgoing(Method::POST, &[(COOKIE, "c"), (CONTENT_TYPE, "t")]);
        assert_eq!(sent_to(&mut form, 308, "http://two.invalid/"), Ok(true));
        assert_eq!((form.method.as_str(), form.body.is_some()), ("POST", true));
        assert!(!form.headers.contains_key(COOKIE) && form.headers.contains_key(CONTENT_TYPE));
        assert_eq!(form.headers[REFERER], "http://one.invalid/");
    }

    #[test]
    fn what_a_variable_filled_goes_nowhere_else() {
        let key = HeaderName::from_static("x-api-key");
        let mut request = outgoing(Method::GET, &[(key.clone(), "secret"), (CONTENT_TYPE, "t")]);
        request.headers.get_mut(&key).expect("just set").set_sensitive(true);
        assert_eq!(sent_to(&mut request, 302, "/elsewhere"), Ok(true));
        assert!(request.headers.contains_key(&key), "it is the same origin");
        for location in ["https://one.invalid/", "http://one.invalid:81/", "http://two.invalid/"] {
            let mut request = request.clone();
            assert_eq!(sent_to(&mut request, 307, location), Ok(true));
            assert!(!request.headers.contains_key(&key) && request.headers.contains_key(CONTENT_TYPE), "{location}");
        }
    }

    #[test]
    fn an_answer_counts_unless_it_names_a_place() {
        assert_eq!(sent_to(&mut outgoing(Method::GET, &[]), 304, "/x"), Ok(false));
        assert_eq!(sent_to(&mut outgoing(Method::GET, &[]), 302, "http://[bad"), Ok(false));
        assert!(sent_to(&mut outgoing(Method::GET, &[]), 302, "ftp://x/").is_err());
    }
}
