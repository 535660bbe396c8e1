//! What a build without a feature answers where the feature would be needed.

#[cfg(not(feature = "http"))]
#[tokio::test]
async fn without_the_feature_a_request_names_it() {
    use exec_env::http::{Http, HttpRequest, Redirects};
    let request = HttpRequest {
        method: "GET".to_owned(),
        url: "http://127.0.0.1:1".to_owned(),
        headers: Vec::new(),
        body: None,
        timeout: None,
        redirects: Redirects::Follow,
    };
    let error = exec_local::http::LocalHttp::new().request(request).await.expect_err("there is no client").to_string();
    assert!(error.ends_with(r#"this build has no HTTP client: build exec-local with the feature "http""#), "{error}");
}

#[cfg(not(feature = "search"))]
#[tokio::test]
async fn without_the_feature_a_search_names_it() {
    use exec_env::files::{Files, Pattern, SearchQuery};
    let query = SearchQuery::new("/", Pattern::Literal("x".to_owned()));
    let files = exec_local::files::LocalFiles::open(None);
    let error = files.search(query).await.err().expect("there is no engine").to_string();
    assert_eq!(error, r#"this build has no search in contents: build exec-local with the feature "search""#);
}
