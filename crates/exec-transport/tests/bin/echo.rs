//! A server that echoes every message, for the tests of stdio. `transport-echo URL`.

use std::error::Error;

use exec_transport::{CloseReason, ListenOptions, ListenUrl, Listener, Received};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url: ListenUrl = std::env::args().nth(1).ok_or("usage: transport-echo URL")?.parse()?;
    let mut listener = Listener::bind(&url, ListenOptions::default()).await?;
    if url != ListenUrl::Stdio {
        println!("{}", listener.url());
    }
    eprintln!("serving {}", listener.url());
    let mut connection = listener.accept().await?;
    loop {
        match connection.receiver.next().await {
            Received::Message(message) => {
                connection.sender.feed(message).await?;
                connection.sender.flush().await?;
            }
            Received::Malformed { reason } => eprintln!("malformed: {reason}"),
            Received::Closed(closed) => {
                eprintln!("{closed}");
                break;
            }
        }
    }
    connection.sender.close(CloseReason::normal()).await;
    listener.close().await;
    Ok(())
}
