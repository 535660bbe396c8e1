//! Questions to a person before something is done.
//!
//! Until 2025-11-25 the client is asked while its call waits. From 2026-07-28 on the call is answered with the question, and
//! made again with the answer; the question is remembered here, for that one call and one answer. Either way nothing is done
//! before the answer, and whoever cannot ask a person is refused.
//!
//! To accept the form is not enough: it has one field, and only `true` in it is a yes. Codex accepts forms without fields by
//! itself, when it runs without sandbox or approvals, and nobody would have been asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use exec_core::text::is_misleading;
use rmcp::model::{
    BooleanSchema, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, JsonObject, PrimitiveSchemaDefinition, ProtocolVersion,
};

use crate::call::Call;
use crate::limits::{OPEN_QUESTIONS, QUESTION_BYTES};
use crate::tools::{ToolOutcome, failed};

/// The key of the question in what a client is asked for.
const KEY: &str = "approval";

/// The field of the form that says yes.
const APPROVE: &str = "approve";

/// What the user can do where a client answers in their place.
const HOW_TO_BE_ASKED: &str = "If the user was not asked, the client has answered in their place, as it does without a terminal or \
                               when it is told to ask nothing: then the user runs it interactively, allows it to ask, or starts \
                               exec-server mcp with another --ask.";

/// When a person is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ask {
    /// Never: what would be outside the sandbox is refused.
    #[default]
    Never,
    /// Before anything is done outside the sandbox.
    OutsideSandbox,
    /// Before anything is run, typed, ended or changed.
    Always,
}

pub(crate) struct Approvals {
    ask: Ask,
    /// Questions that clients were sent away with, the oldest first.
    open: Mutex<VecDeque<OpenQuestion>>,
}

struct OpenQuestion {
    /// What the client sends back with the answer.
    state: String,
    tool: String,
    arguments: JsonObject,
    question: String,
}

enum Answer {
    Given(ElicitResult),
    /// The client has been told to ask.
    NotYet(InputRequiredResult),
    /// Nobody can be asked, for this reason.
    Impossible(String),
}

impl Approvals {
    pub(crate) fn new(ask: Ask) -> Self {
        Self { ask, open: Mutex::default() }
    }

    pub(crate) fn ask(&self) -> Ask {
        self.ask
    }

    /// Whether the call may go on. If not, what it is answered. `outside_sandbox`: it would do more than the sandbox permits.
    pub(crate) async fn permit(
        &self,
        call: &Call,
        outside_sandbox: bool,
        question: impl FnOnce() -> String,
    ) -> Result<(), ToolOutcome> {
        let refused = |why: String| Ok(CallToolResponse::from(failed(why)));
        match (self.ask, outside_sandbox) {
            (Ask::Never, true) => {
                let why = "nothing is done outside the sandbox here: do it within, or let the user do it. (To be asked, the user \
                           starts exec-server mcp with --ask outside-sandbox.)";
                return Err(refused(why.to_owned()));
            }
            (Ask::Never | Ask::OutsideSandbox, false) => return Ok(()),
            (Ask::OutsideSandbox, true) | (Ask::Always, _) => {}
        }
        match self.answer(call, readable(&question())).await? {
            Answer::NotYet(question) => Err(Ok(CallToolResponse::InputRequired(question))),
            Answer::Impossible(why) => Err(refused(why)),
            Answer::Given(answer) => match answer.action {
                ElicitationAction::Accept => match approval_in(&answer) {
                    Some(true) => Ok(()),
                    Some(false) => Err(refused(declined())),
                    None => Err(refused(format!(
                        "the client has accepted the question without its answer (the field `{APPROVE}` is not there), and \
                         nothing was done: ask what to do. {HOW_TO_BE_ASKED}"
                    ))),
                },
                ElicitationAction::Decline => Err(refused(declined())),
                // Whatever else there may be one day is no consent.
                _ => Err(refused(format!(
                    "the user has not decided, and nothing was done: ask what to do. {HOW_TO_BE_ASKED}"
                ))),
            },
        }
    }

    async fn answer(&self, call: &Call, question: String) -> Result<Answer, ToolOutcome> {
        if question.len() > QUESTION_BYTES {
            let why = format!(
                "this is too long to be shown to a person for approval ({} bytes of {QUESTION_BYTES}): put it into a file first",
                question.len()
            );
            return Ok(Answer::Impossible(why));
        }
        if !call.client_shows_forms() {
            let why = "this needs the approval of a person, and this client cannot ask one (it does not support elicitation): do \
                       without it, or let the user do it. (The user decides what needs approval with exec-server mcp --ask.)";
            return Ok(Answer::Impossible(why.to_owned()));
        }
        let is_stateless =
            call.context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        if is_stateless {
            return Ok(self
                .returned_answer(call, &question)
                .map_or_else(|| self.send_away(call, question), Answer::Given));
        }
        let asked = call.unless_cancelled(call.context.peer.create_elicitation(form(question))).await;
        match asked.map_err(|cancelled| Err(cancelled.into()))? {
            Ok(answer) => Ok(Answer::Given(answer)),
            Err(error) => {
                Ok(Answer::Impossible(format!("the client could not ask for approval, so nothing was done: {error}")))
            }
        }
    }

    /// The answer that came with the call, if it belongs to this question. An answer counts once.
    fn returned_answer(&self, call: &Call, question: &str) -> Option<ElicitResult> {
        let (state, answer) = (call.request_state.as_ref()?, call.input_responses.get(KEY)?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|open| open.state == *state)?;
        let asked = open.remove(at)?;
        let is_same = asked.tool == call.name && asked.arguments == call.arguments && asked.question == question;
        is_same.then(|| serde_json::from_value(answer.clone()).ok())?
    }

    fn send_away(&self, call: &Call, question: String) -> Answer {
        // Nobody guesses it.
        let state = uuid::Uuid::new_v4().to_string();
        let request = InputRequest::Elicitation(ElicitRequest::new(form(question.clone())));
        let (tool, arguments) = (call.name.clone(), call.arguments.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_QUESTIONS {
            // Its answer, if it still comes, is asked for anew.
            open.pop_front();
        }
        open.push_back(OpenQuestion { state: state.clone(), tool, arguments, question });
        Answer::NotYet(InputRequiredResult::new(Some(BTreeMap::from([(KEY.to_owned(), request)])), Some(state)))
    }
}

fn declined() -> String {
    format!(
        "the user has declined, and nothing was done: do not try the same in another way; ask what to do instead. \
         {HOW_TO_BE_ASKED}"
    )
}

/// What an accepted form says; `None` if it says nothing.
fn approval_in(answer: &ElicitResult) -> Option<bool> {
    answer.content.as_ref()?.get(APPROVE)?.as_bool()
}

/// A form with one field, which has no default.
fn form(message: String) -> ElicitRequestParams {
    let field = BooleanSchema::new().title("Approve").description("true: do it. false: do not");
    let fields = BTreeMap::from([(APPROVE.to_owned(), PrimitiveSchemaDefinition::Boolean(field))]);
    let requested_schema = ElicitationSchema::new(fields).with_required(vec![APPROVE.to_owned()]);
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// What an agent has written, as a part of a question: each line begins with spaces, so none can pass for one of ours.
pub(crate) fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// With every character that could make a person read something else than what is there written as a number.
fn readable(text: &str) -> String {
    let mut readable = String::with_capacity(text.len());
    for c in text.chars() {
        match is_misleading(c) && c != '\n' {
            true => readable.extend(c.escape_unicode()),
            false => readable.push(c),
        }
    }
    readable
}

#[cfg(test)]
mod tests {
    use super::{quoted, readable};

    #[test]
    fn no_line_of_an_agent_passes_for_one_of_ours() {
        assert_eq!(
            quoted("true\n\nWhy, says the agent:\r\nharmless"),
            "    true\n    \n    Why, says the agent:\n    harmless"
        );
    }

    #[test]
    fn what_misleads_a_reader_is_shown_as_a_number_and_nothing_else_changes() {
        assert_eq!(readable("rm -rf \u{1b}[8m/\u{1b}[0m"), "rm -rf \\u{1b}[8m/\\u{1b}[0m");
        assert_eq!(readable("echo \u{202e}cod.\r\u{200b}"), "echo \\u{202e}cod.\\u{d}\\u{200b}");
        assert_eq!(readable("äöü 漢字 🦀\n\tx"), "äöü 漢字 🦀\n\tx");
    }
}
