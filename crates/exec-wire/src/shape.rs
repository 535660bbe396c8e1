//! The shapes of messages: structs and enums that serde writes and reads, declared without saying so each time.
//!
//! [`shapes!`] gives each struct and each enum of names the derives that all of them have, and camelCase. A member of
//! type `Option` may be absent, and is left out where there is none; one that Codex's server writes as `null` is
//! [`Nullable`]. Everything else is said by attributes, as usual: `#[derive(Default)]`, `#[serde(expecting = …)]`.

/// A member that is written as `null` where there is none. With `#[serde(default)]` it may be absent in an array, too.
pub(crate) type Nullable<T> = Option<T>;

macro_rules! shapes {
    () => {};
    ($(#[$attribute:meta])* pub struct $name:ident { $($members:tt)* } $($more:tt)*) => {
        crate::shape::members! { [$(#[$attribute])* $name] {} $($members)* }
        crate::shape::shapes! { $($more)* }
    };
    ($(#[$attribute:meta])* pub enum $name:ident { $($names:tt)* } $($more:tt)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$attribute])*
        pub enum $name { $($names)* }
        crate::shape::shapes! { $($more)* }
    };
}

/// Takes the members of a struct one by one, because an `Option` has an attribute that others have not.
macro_rules! members {
    ([$(#[$attribute:meta])* $name:ident] { $($done:tt)* }) => {
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$attribute])*
        pub struct $name { $($done)* }
    };
    ($head:tt { $($done:tt)* } $(#[$attribute:meta])* pub $member:ident: Option<$type:ty>, $($more:tt)*) => {
        crate::shape::members! { $head {
            $($done)*
            $(#[$attribute])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $member: Option<$type>,
        } $($more)* }
    };
    ($head:tt { $($done:tt)* } $(#[$attribute:meta])* pub $member:ident: $type:ty, $($more:tt)*) => {
        crate::shape::members! { $head { $($done)* $(#[$attribute])* pub $member: $type, } $($more)* }
    };
}

pub(crate) use {members, shapes};
