// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Server holds MIB MiB of its heap after GET /hold?MIB. It starts as a framework does: it loads thousands of classes. */
class Server {
	private static final List<byte[]> held = new ArrayList<>();

	public static void main(String[] args) throws Exception {
		System.out.println("max heap: " + Runtime.getRuntime().maxMemory());
		var modules = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules/java.base");
		try (var files = Files.walk(modules.resolve("java"))) {
			for (Path file : (Iterable<Path>) files.filter(f -> f.toString().endsWith(".class"))::iterator) {
				Class.forName(modules.relativize(file).toString().replace(".class", "").replace('/', '.'), false, null);
			}
		}
		var server = HttpServer.create(new InetSocketAddress(8080), 0);
		server.createContext("/hold", exchange -> {
			int status = 200;
			try {
				hold(Integer.parseInt(exchange.getRequestURI().getQuery().replace("mebibytes=", "")));
			} catch (OutOfMemoryError e) {
				held.clear();
				System.out.println(e);
				status = 507;
			}
			exchange.sendResponseHeaders(status, -1);
			exchange.close();
		});
		server.start();
	}

	private static void hold(int mebibytes) {
		while (held.size() < mebibytes) {
			held.add(new byte[1 << 20]);
			held.set(held.size() - 1, new byte[1 << 20]); // the first one is garbage
		}
	}
}
