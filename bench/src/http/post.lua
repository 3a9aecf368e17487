-- One job of about 200 bytes, again and again.
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = [[{"tenant":"acme","type":"update","request":{"method":"GET","path":"/score","query":{"person":"05227892180"},]]
  .. [["headers":{"accept":"application/json"}},"params":{"order":"a6f2c1d4","campaign":"spring","note":"x"}}]]
