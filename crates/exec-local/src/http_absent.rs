//! HTTP from this machine, in a build without the feature `http`: the same names, and every request answers an error.

use std::ffi::OsString;

use exec_env::BoxFuture;
use exec_env::http::{Http, HttpError, HttpRequest, HttpResponse};

use crate::descriptors::DescriptorBudget;

/// This machine's HTTP, which this build does not have.
#[derive(Default)]
pub struct LocalHttp;

impl LocalHttp {
    /// See the build with the feature.
    pub fn new() -> Self {
        Self
    }

    /// See the build with the feature.
    pub fn with_variables(_lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        Self
    }

    /// See the build with the feature.
    pub fn with_descriptors(self, _descriptors: DescriptorBudget) -> Self {
        self
    }
}

impl Http for LocalHttp {
    fn request(&self, _request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        let why = r#"this build has no HTTP client: build exec-local with the feature "http""#.to_owned();
        Box::pin(std::future::ready(Err(HttpError::Failed { why, causes: String::new() })))
    }
}
