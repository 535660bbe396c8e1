//! The hand-written path of `process/output` says the same as serde, both ways.

use exec_wire::envelope::{self, Incoming, write_notification};
use exec_wire::output_codec::{DecodedOutput, OutputEncoder, decode_output};
use exec_wire::process::{OutputParams, Stream};
use proptest::prelude::*;

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr), Just(Stream::Pty)]
}

proptest! {
    #[test]
    fn the_output_encoder_writes_what_serde_writes(
        process_id in any::<String>(),
        seq in any::<u64>(),
        stream in stream(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        jsonrpc in any::<bool>(),
    ) {
        let encoder = OutputEncoder::new(&process_id, jsonrpc);
        let mut encoded = Vec::new();
        encoder.encode(&mut encoded, seq, stream, &bytes);
        prop_assert!(encoded.len() <= encoder.max_len(bytes.len()));
        let params = OutputParams { process_id, seq, stream, chunk: bytes.into() };
        let mut ordinary = Vec::new();
        write_notification(&mut ordinary, "process/output", &params, jsonrpc);
        prop_assert_eq!(String::from_utf8(encoded), String::from_utf8(ordinary));
    }

    #[test]
    fn the_output_decoder_reads_what_the_ordinary_one_reads_or_leaves_it_alone(
        process_id in prop_oneof!["[a-z0-9-]{0,40}", any::<String>()],
        seq in any::<u64>(),
        stream in stream(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        jsonrpc in any::<bool>(),
    ) {
        let mut message = Vec::new();
        OutputEncoder::new(&process_id, jsonrpc).encode(&mut message, seq, stream, &bytes);
        let text = String::from_utf8(message).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let decoded = decode_output(&text);
        let plain = serde_json::to_string(&process_id).is_ok_and(|json| json.len() == process_id.len() + 2);
        prop_assert_eq!(decoded.is_some(), plain);
        if let Some(decoded) = decoded {
            prop_assert_eq!(decoded, DecodedOutput { process_id: &process_id, seq, stream, bytes });
        }
    }

    #[test]
    fn what_the_output_decoder_takes_the_ordinary_one_takes(
        position in any::<proptest::sample::Index>(),
        damage in any::<char>(),
    ) {
        let golden = r#"{"method":"process/output","params":{"processId":"build-7","seq":10,"stream":"stdout","chunk":"aGkK"}}"#;
        let mut characters: Vec<char> = golden.chars().collect();
        let position = position.index(characters.len());
        characters[position] = damage;
        let text: String = characters.into_iter().collect();
        if let Some(decoded) = decode_output(&text) {
            let Ok(Incoming::Notification(notification)) = envelope::decode(&text) else {
                return Err(TestCaseError::fail("only the output decoder takes it"));
            };
            let ordinary: OutputParams = notification
                .params
                .decode()
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(decoded.process_id, ordinary.process_id);
            prop_assert_eq!((decoded.seq, decoded.stream), (ordinary.seq, ordinary.stream));
            prop_assert_eq!(decoded.bytes, ordinary.chunk.0);
        }
    }
}
