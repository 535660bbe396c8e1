//! Values of JavaScript as values of `exec-sdk`, and back.
//!
//! A name that is no UTF-8 is a string all the same: each byte that is no text becomes a lone surrogate, U+DC80 to U+DCFF, of
//! which its bytes can be made again. Python does so, too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use exec_sdk::Value;
use napi::bindgen_prelude::{
    Array, BufferSlice, Either6, JavaScriptClassExt as _, Null, Object, ToNapiValue as _, Unknown, Utf16String,
};
use napi::{Env, JsValue as _, Result};

use crate::NativeObject;

/// What an argument may be. The order matters: an array is an object, too.
type Given<'a> = Either6<bool, f64, Utf16String, BufferSlice<'a>, Array<'a>, Object<'a>>;

/// The lone surrogate that stands for the byte 0.
const ESCAPED: u16 = 0xdc00;

/// Whole numbers beyond it have no number of their own in JavaScript.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

pub(crate) fn pairs_of(object: &Object<'_>) -> Result<Vec<(String, Value)>> {
    let names = Object::keys(object)?;
    names
        .into_iter()
        .map(|name| {
            let value = object.get::<Option<Given<'_>>>(&name)?.flatten();
            Ok((name, value.map_or(Ok(Value::Null), from_js)?))
        })
        .collect()
}

fn from_js(value: Given<'_>) -> Result<Value> {
    Ok(match value {
        Either6::A(value) => Value::Bool(value),
        Either6::B(value) if value.fract() == 0.0 && value.abs() <= MAX_SAFE_INTEGER => Value::Int(value as i64),
        Either6::B(value) => Value::Float(value),
        Either6::C(text) => match String::from_utf16(&text) {
            Ok(text) => Value::Text(text),
            Err(_) => Value::Os(OsString::from_vec(unescaped(&text))),
        },
        Either6::D(bytes) => Value::Bytes(bytes.to_vec().into()),
        Either6::E(array) => {
            let items = (0..array.len()).map(|index| {
                let item = array.get::<Option<Given<'_>>>(index)?.flatten();
                item.map_or(Ok(Value::Null), from_js)
            });
            Value::List(items.collect::<Result<_>>()?)
        }
        Either6::F(object) => Value::Map(pairs_of(&object)?),
    })
}

/// The bytes of a string that has surrogates for bytes that are no text. Any other lone surrogate becomes U+FFFD.
fn unescaped(text: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in char::decode_utf16(text.iter().copied()) {
        match character {
            Ok(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(error) => match u8::try_from(error.unpaired_surrogate().wrapping_sub(ESCAPED)) {
                Ok(byte @ 0x80..) => bytes.push(byte),
                _ => bytes.extend_from_slice("\u{fffd}".as_bytes()),
            },
        }
    }
    bytes
}

pub(crate) fn to_js(env: &Env, value: Value) -> Result<Unknown<'_>> {
    Ok(match value {
        Value::Null => Null.into_unknown(env)?,
        Value::Bool(value) => value.into_unknown(env)?,
        Value::Int(value) => env.create_double(value as f64)?.to_unknown(),
        Value::Float(value) => env.create_double(value)?.to_unknown(),
        Value::Text(value) => env.create_string(value)?.to_unknown(),
        Value::Os(value) => os_to_js(env, &value)?,
        Value::Bytes(value) => BufferSlice::copy_from(env, value)?.to_unknown(),
        Value::List(values) => {
            let mut list = env.create_array(values.len() as u32)?;
            for (index, value) in values.into_iter().enumerate() {
                list.set(index as u32, to_js(env, value)?)?;
            }
            list.to_unknown()
        }
        Value::Map(pairs) => {
            let mut map = Object::new(env)?;
            for (name, value) in pairs {
                map.set(name, to_js(env, value)?)?;
            }
            map.to_unknown()
        }
        Value::Object(object) => NativeObject::new(object).into_instance(env)?.to_unknown(),
    })
}

pub(crate) fn os_to_js<'env>(env: &'env Env, text: &OsStr) -> Result<Unknown<'env>> {
    if let Some(text) = text.to_str() {
        return Ok(env.create_string(text)?.to_unknown());
    }
    let mut escaped = Vec::with_capacity(text.len());
    for chunk in text.as_bytes().utf8_chunks() {
        escaped.extend(chunk.valid().encode_utf16());
        escaped.extend(chunk.invalid().iter().map(|byte| ESCAPED + u16::from(*byte)));
    }
    Ok(env.create_string_utf16(escaped)?.to_unknown())
}
