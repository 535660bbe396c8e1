//! HTTP from the machine: `http/request`, and the body in pieces where it is streamed.

use crate::base64::Base64;
use crate::empty::empty_results;
use crate::shape::{Nullable, shapes};

shapes! {
    /// Makes an HTTP request from the machine.
    #[serde(expecting = "struct HttpRequestParams")]
    pub struct RequestParams {
        /// Any HTTP token.
        pub method: String,
        /// `http` or `https`.
        pub url: String,
        /// In this order, repeats included.
        #[serde(default)]
        pub headers: Vec<Header>,
        pub body_base64: Option<Base64>,
        /// When to give up; never if absent.
        pub timeout_ms: Option<u64>,
        #[serde(default)]
        pub redirect_policy: RedirectPolicy,
        /// The client's key, unique among its streams.
        pub request_id: String,
        /// Whether the body comes in pieces, after the answer.
        #[serde(default)]
        pub stream_response: bool,
        /// Most of a streamed body that may be sent and not yet acknowledged, in bytes; as much as the connection takes if
        /// absent.
        pub body_window_bytes: Option<u64>,
    }

    #[serde(expecting = "struct HttpHeader")]
    pub struct Header {
        pub name: String,
        /// Its value, or the beginning of it.
        pub value: String,
        /// A variable of the server's environment whose value follows.
        pub value_env_var: Option<String>,
    }

    #[derive(Default)]
    pub enum RedirectPolicy {
        /// Follow redirects.
        #[default]
        Follow,
        /// Return the redirect to the caller.
        Stop,
    }

    /// The response, whatever its status.
    pub struct RequestResult {
        pub status: u16,
        /// Names in lower case; values that are not text are left out.
        pub headers: Vec<Header>,
        /// The body; empty if it is streamed.
        pub body_base64: Base64,
    }

    /// A piece of a streamed body.
    #[serde(expecting = "struct HttpRequestBodyDeltaNotification")]
    pub struct BodyDeltaParams {
        pub request_id: String,
        /// 1, 2, 3 …
        pub seq: u64,
        /// The piece; empty in the last one.
        pub delta_base64: Base64,
        /// Whether this is the last piece.
        pub done: bool,
        /// Why it ended early.
        #[serde(default)]
        pub error: Nullable<String>,
    }

    /// Says which pieces of a body were taken, so that more are sent.
    pub struct AcknowledgeBodyParams {
        pub request_id: String,
        /// The last piece that was taken, and with it all before it.
        pub seq: u64,
    }

    /// Ends a request whose response is streamed, wherever it is. No notification follows the answer.
    pub struct CancelRequestParams {
        pub request_id: String,
    }
}

empty_results! {
    /// It was noted, or the body has ended.
    AcknowledgeBodyResult,
    /// The request is over, or never was.
    CancelRequestResult,
}
